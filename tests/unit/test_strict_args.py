"""``strict_args``: arguments such as a URL could carry; everything else is refused where the call is written."""

import datetime as dt
import decimal
import enum
import logging
import uuid
from collections import OrderedDict, namedtuple
from contextlib import contextmanager

import pytest
from celery import Task, _state, chain, signals
from celery.app.task import Context
from celery.exceptions import Ignore
from kombu.utils.functional import LRUCache
from pydantic import BaseModel

from celery_once_more import ArgumentsError, ConfigurationError
from celery_once_more.strict_args import LONGEST_TEXT

Point = namedtuple("Point", "x y")


class Colour(str, enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Shade(enum.Enum):
    DARK = "dark"


class Order(BaseModel):
    id: int


class Model:
    """As an ORM has them."""

    pk = 7


def settle(event_id, payload=None):
    return event_id


def outer():
    pass


TAKEN = {
    "None": None,
    "True": True,
    "False": False,
    "nought": 0,
    "a negative number": -7,
    "a number of many digits": 10**30,
    "an empty text": "",
    "a text": "evt_123",
    "a text beyond ASCII": "caf\u00e9",
    "the longest text": "x" * LONGEST_TEXT,
    "a UUID": uuid.UUID(int=5),
    "a date": dt.date(2026, 1, 31),
    "a moment": dt.datetime(2026, 1, 31, 12, 30, tzinfo=dt.timezone.utc),
    "a naive moment": dt.datetime(2026, 1, 31, 12, 30),
    "a time": dt.time(12, 30),
    "a member of a text enum": Colour.RED,
    "a member of a number enum": Level.LOW,
    "an empty list": [],
    "a list of each": [None, True, 1, "evt", uuid.UUID(int=5), dt.date(2026, 1, 31)],
    "a tuple": ("a", 1),
}
#: the value, and what the error says that it is
REFUSED = {
    "a dict": ({"amount": 5}, "is a dict;"),
    "an empty dict": ({}, "is a dict;"),
    "another mapping": (OrderedDict(a=1), "is a OrderedDict;"),
    "a float": (1.5, "is a float;"),
    "a decimal": (decimal.Decimal("1.5"), "is a Decimal;"),
    "a duration": (dt.timedelta(days=1), "is a timedelta;"),
    "bytes": (b"evt", "is a bytes;"),
    "a set": ({1, 2}, "is a set;"),
    "a range": (range(3), "is a range;"),
    "a generator": ((i for i in "ab"), "is a generator;"),
    "a model instance": (Model(), "is a Model;"),
    "a pydantic model": (Order(id=1), "is a Order;"),
    "a member of another enum": (Shade.DARK, "is a Shade;"),
    "an exception": (ValueError("x"), "is a ValueError;"),
    "a function": (settle, "is a function;"),
    "a class": (Model, "is a type;"),
    "a cache": (LRUCache(), "is a LRUCache;"),
    "a long text": ("x" * (LONGEST_TEXT + 1), f"is a text of {LONGEST_TEXT + 1} characters;"),
    "a list in a list": ([1, [2]], "has a list in it;"),
    "a tuple in a tuple": ((1, (2,)), "has a tuple in it;"),
    "a dict in a list": ([{"amount": 5}], "has a dict in it;"),
    "a float in a list": ([1, 2.5], "has a float in it;"),
    "a model in a list": ([Model()], "has a Model in it;"),
    "a long text in a list": (["a", "x" * 300], "has a text of 300 characters in it;"),
    "a named tuple with a dict": (Point(1, {}), "has a dict in it;"),
}


@pytest.fixture
def broker_of():
    """The messages that were sent of a task, as its broker has them: ``(args, kwargs)``."""
    sent = []

    def receive(sender, body, **_):
        sent.append((sender, body[0], body[1]))

    signals.before_task_publish.connect(receive)
    yield lambda task: [(args, kwargs) for sender, args, kwargs in sent if sender == task.name]
    signals.before_task_publish.disconnect(receive)


@pytest.mark.parametrize("value", TAKEN.values(), ids=TAKEN.keys())
def test_small_primitives_are_taken(task, store, broker_of, value):
    settles = task(settle, strict_args=True)
    settles.delay("evt", payload=value)
    settles.delay(value)
    assert len(broker_of(settles)) == 2


@pytest.mark.parametrize(("value", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_everything_else_is_refused_by_name_with_what_to_pass_instead(task, store, broker_of, value, said):
    settles = task(settle, strict_args=True, lock_args=["event_id"])
    with pytest.raises(ArgumentsError) as caught:
        settles.delay("evt", value)
    assert (caught.value.task, caught.value.argument) == ("unit.settle", "payload")
    sentence = str(caught.value)
    assert sentence.startswith(f"task 'unit.settle': argument payload {said}")
    assert "pass an id, and load it fresh in the task" in sentence
    assert store.acts == []
    assert broker_of(settles) == []


def test_without_the_option_nothing_is_refused_that_can_be_sent(task, store, broker_of):
    settles = task(settle)
    settles.delay("evt", {"amount": 1.5, "text": "x" * 300})
    assert len(broker_of(settles)) == 1


# where it stands


def test_the_first_wrong_argument_is_named(task, store):
    with pytest.raises(ArgumentsError) as caught:
        task(settle, strict_args=True).delay({}, 1.5)
    assert caught.value.argument == "event_id"


def test_one_of_the_further_positions_is_named_by_its_place(task, store):
    def total(first, *amounts):
        pass

    totals = task(total, strict_args=True)
    totals.delay(1, 2, [3, 4])
    with pytest.raises(ArgumentsError, match="is a float") as caught:
        totals.delay(1, 2, 2.5)
    assert caught.value.argument == "amounts[1]"


def test_a_member_of_the_keyword_arguments_is_named_by_its_name(task, store):
    def anything(**kwargs):
        pass

    takes = task(anything, strict_args=True)
    takes.delay(event_id=1, ids=[1, 2])
    with pytest.raises(ArgumentsError, match="is a dict") as caught:
        takes.delay(event_id=1, payload={})
    assert caught.value.argument == "payload"


def test_a_default_of_the_function_is_no_less_strict(task, store):
    def paid(event_id, rate=1.5):
        pass

    pays = task(paid, strict_args=True)
    pays.delay("evt", rate=2)
    with pytest.raises(ArgumentsError) as caught:
        pays.delay("evt")
    assert caught.value.argument == "rate"


def test_arguments_that_do_not_fit_the_function_are_celerys_to_refuse(task, store):
    with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments but 3") as caught:
        task(settle, strict_args=True).delay(1, 2, 3)
    assert not isinstance(caught.value, ArgumentsError)


def test_a_bound_task_is_not_its_own_argument(task, store, broker_of):
    def bound(self, event_id):
        pass

    binds = task(bound, bind=True, strict_args=True)
    binds.delay("evt")
    assert len(broker_of(binds)) == 1


# without a lock, per call


def test_without_a_lock_it_is_as_strict_and_asks_the_store_nothing(task, store, broker_of):
    settles = task(settle, lock=None, strict_args=True)
    settles.delay("evt")
    with pytest.raises(ArgumentsError, match="is a dict"):
        settles.delay("evt", {})
    assert len(broker_of(settles)) == 1
    assert store.acts == []


def test_a_call_may_be_stricter_than_its_task(task, store, broker_of):
    settles = task(settle)
    with pytest.raises(ArgumentsError, match="is a dict"):
        settles.apply_async(("evt", {}), strict_args=True)
    with pytest.raises(ArgumentsError, match="is a dict"):
        task(settle, name="unit.unlocked", lock=None).apply_async(("evt", {}), strict_args=True)
    settles.apply_async(("evt", {}))
    assert len(broker_of(settles)) == 1


def test_a_call_may_be_less_strict_than_its_task(task, store, broker_of):
    settles = task(settle, strict_args=True)
    settles.apply_async(("evt", {}), strict_args=False)
    assert len(broker_of(settles)) == 1


def test_a_signature_is_checked_when_it_is_sent_and_carries_the_option(task, store, broker_of):
    settles = task(settle)
    strict = settles.s("evt", {}).set(strict_args=True)
    with pytest.raises(ArgumentsError, match="is a dict"):
        strict.delay()
    with pytest.raises(ArgumentsError, match="is a dict"):
        strict.apply_async()
    settles.s("evt", {}).delay()
    assert len(broker_of(settles)) == 1


def test_the_option_of_a_call_goes_no_further(task, store, broker_of):
    """It is no option of the message."""
    settles, seen = task(settle), []

    def see(headers, properties, body, **_):
        seen.append(repr((headers, properties, body)))

    signals.before_task_publish.connect(see)
    settles.apply_async(("evt",), strict_args=True)
    (message,) = seen
    assert "unit.settle" in message
    assert "strict" not in message


def test_what_is_no_answer_is_refused_per_call_too(task, store):
    with pytest.raises(ConfigurationError, match="strict_args must be True or False, not 'yes'"):
        task(settle).apply_async(("evt",), strict_args="yes")


def test_a_check_without_a_publish_is_as_strict(task, store, broker_of):
    settles = task(settle, lock=None, strict_args=True)
    settles.once_more_check(("evt",), {}, {})
    with pytest.raises(ArgumentsError, match="is a dict"):
        settles.once_more_check(("evt", {}), {}, {})
    assert broker_of(settles) == []


def test_the_publisher_of_a_chain_is_told_of_its_first_step_only(task, store, broker_of):
    settles = task(settle, strict_args=True)
    with pytest.raises(ArgumentsError, match="is a dict"):
        chain(settles.si("evt", {}), settles.si("evt")).delay()
    assert broker_of(settles) == []
    chain(settles.si("evt"), settles.si("evt", {})).delay()
    assert len(broker_of(settles)) == 1


def test_direct_calls_are_not_checked(task, store):
    settles = task(settle, strict_args=True)
    assert settles("evt", {}) == settles.apply(("evt", {})).get() == "evt"


def test_a_publish_in_eager_mode_is_checked_so_that_a_projects_own_tests_see_it(app, task, store):
    settles = task(settle, strict_args=True)
    app.conf.task_always_eager = True
    with pytest.raises(ArgumentsError, match="argument payload is a dict"):
        settles.delay("evt", {})


# what a worker publishes


@pytest.fixture
def in_worker(app):
    """``with in_worker(task, …): …``: in the body of a run of this task, as a pool has it."""

    @contextmanager
    def running(task, **request):
        more = {"id": "running", "retries": 0, "args": ("evt", {}), "kwargs": {}, "delivery_info": {"routing_key": "celery"}}
        context = Context({**more, **request}, called_directly=False)
        task.request_stack.push(context)
        _state._task_stack.push(task)
        _state._set_task_join_will_block(True)
        try:
            yield context
        finally:
            _state._set_task_join_will_block(False)
            _state._task_stack.pop()
            task.request_stack.pop()

    return running


def test_a_body_that_publishes_is_a_publisher_like_any_other(app, task, store, in_worker):
    settles = task(settle, strict_args=True)
    plain = task(outer, base=Task)
    with in_worker(plain), pytest.raises(ArgumentsError, match="is a dict"):
        settles.delay("evt", {})


@pytest.mark.parametrize("lock", ["until_executed", None])
def test_a_step_that_a_worker_publishes_for_a_finished_one_goes_with_a_warning(task, store, in_worker, broker_of, caplog, lock):
    """As the tracer publishes it: with the ids of its root and its parent."""
    settles = task(settle, strict_args=True, lock=lock)
    plain = task(outer, base=Task)
    with in_worker(plain):
        settles.s({}).apply_async(("evt",), parent_id="running", root_id="running")
    assert len(broker_of(settles)) == 1
    (warning,) = [r for r in caplog.records if "strict_args" in r.getMessage()]
    assert warning.levelno == logging.WARNING
    assert "task unit.settle[" in warning.getMessage()
    assert "argument payload is a dict" in warning.getMessage()


def test_a_retry_is_not_checked_again(task, store, in_worker, broker_of, caplog):
    """Its arguments came from the broker: somebody let them in."""
    settles = task(settle, strict_args=True, lock=None)
    with in_worker(settles):
        settles.retry(countdown=0, throw=False)
    assert [args for args, _ in broker_of(settles)] == [("evt", {})]
    assert caplog.records == []


def test_a_replacement_goes_with_a_warning(app, task, store, in_worker, broker_of, caplog):
    settles = task(settle, strict_args=True)
    plain = task(outer, lock=None)
    with in_worker(plain), pytest.raises(Ignore, match="Replaced by new task"):
        plain.replace(settles.s("evt", {}))
    assert len(broker_of(settles)) == 1
    assert "argument payload is a dict" in caplog.text


def test_what_a_receiver_publishes_in_the_middle_of_a_retry_is_checked(task, store, in_worker, broker_of):
    settles, other = (task(settle, strict_args=True, name=f"unit.{name}") for name in ("retried", "other"))
    caught = []

    def receive(sender, **_):
        if sender == settles.name:
            with pytest.raises(ArgumentsError) as error:
                other.delay("evt", {})
            caught.append(error.value.task)

    signals.before_task_publish.connect(receive)
    with in_worker(settles):
        settles.retry(countdown=0, throw=False)
    assert caught == ["unit.other"]
