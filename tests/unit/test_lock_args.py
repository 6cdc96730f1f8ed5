"""Which arguments of a call count: names, a callable, or all; for every kind of task that Celery knows."""

import functools
import operator

import pytest
from celery import Celery, shared_task, signals, states
from pydantic import BaseModel
from support.deliveries import deliver

from celery_once_more import ArgumentsError, UniqueTask, current_lock
from celery_once_more.run import fresh_ticket
from celery_once_more.ticket import is_exempt


def digest(task, *args, **kwargs):
    return fresh_ticket(task, task.once_more, args, kwargs, task_id="some id", queue="celery", series=0).digest


def settle(event_id, payload=None, *, retried=False):
    return event_id


# names


def test_only_the_named_arguments_count(task):
    settles = task(settle, lock_args=["event_id"])
    assert digest(settles, "evt_1", {"amount": 5}) == digest(settles, event_id="evt_1", payload=object(), retried=True)
    assert digest(settles, "evt_1") != digest(settles, "evt_2")


def test_every_named_argument_counts(task):
    settles = task(settle, lock_args=("event_id", "retried"))
    assert digest(settles, "evt_1") == digest(settles, "evt_1", {"other": 1}, retried=False)
    assert digest(settles, "evt_1") != digest(settles, "evt_1", retried=True)


def test_the_order_of_the_names_does_not_count(app, task):
    one = digest(task(settle, lock_args=["event_id", "payload"]), "a", "b")
    del app.tasks["unit.settle"]
    assert digest(task(settle, lock_args=["payload", "event_id"]), "a", "b") == one


def test_a_name_and_its_value_belong_together(task):
    settles = task(settle, lock_args=["event_id", "payload"])
    assert digest(settles, "a", "b") != digest(settles, "b", "a")


def test_without_names_every_call_is_one(task):
    settles = task(settle, lock_args=[])
    assert digest(settles, "evt_1") == digest(settles, "evt_2", {"amount": 5})


def test_a_named_argument_without_a_stable_form_is_refused(task):
    with pytest.raises(ArgumentsError, match="argument event_id has no stable JSON form: set cannot be sent") as caught:
        digest(task(settle, lock_args=["event_id"]), {1, 2})
    assert (caught.value.task, caught.value.argument) == ("unit.settle", "event_id")


def test_members_of_keyword_arguments_can_be_named(task):
    def anything(**kwargs):
        pass

    anything = task(anything, lock_args=["event_id"])
    assert digest(anything, event_id=1, other=2) == digest(anything, other=3, event_id=1)
    assert digest(anything, event_id=1) != digest(anything, event_id=2)


def test_a_named_member_that_the_call_does_not_give_is_an_error_that_names_it(task):
    def anything(**kwargs):
        pass

    with pytest.raises(ArgumentsError, match="lock_args") as caught:
        digest(task(anything, lock_args=["event_id"]), other=2)
    assert caught.value.argument == "event_id"


def test_the_further_positions_can_be_named_as_one(task):
    def total(*amounts, **more):
        pass

    total = task(total, lock_args=["amounts"])
    assert digest(total, 1, 2, note="a") == digest(total, 1, 2)
    assert digest(total, 1, 2) != digest(total, 1, 3)


def test_a_parameter_goes_before_a_keyword_of_its_name(task):
    def first(x, /, **kwargs):
        pass

    first = task(first, lock_args=["x"])
    assert digest(first, 1, x=2) == digest(first, 1, x=3)
    assert digest(first, 1, x=2) != digest(first, 2, x=2)


# a callable


def test_a_callable_says_what_counts(task):
    settles = task(settle, lock_args=lambda event_id, payload, retried: event_id.lower())
    assert digest(settles, "EVT_1", 1) == digest(settles, event_id="evt_1", payload=2, retried=True)
    assert digest(settles, "evt_1") != digest(settles, "evt_2")


def test_a_callable_is_given_the_defaults_too(task):
    settles = task(settle, lock_args=lambda event_id, payload=5, retried=5: [event_id, payload, retried])
    assert digest(settles, "a") == digest(settles, "a", None, retried=False)
    assert digest(settles, "a") != digest(settles, "a", 5, retried=5)


def test_a_callable_may_take_by_name_only_what_it_wants(task):
    settles = task(settle, lock_args=lambda *, event_id, **_: event_id)
    assert digest(settles, "a", 1, retried=True) == digest(settles, "a", 2)


def test_a_callable_may_name_the_parameters_in_its_own_words(task):
    def keyed(x, y=2):
        pass

    keyed = task(keyed, lock_args=lambda a, b: a)
    assert digest(keyed, 1) == digest(keyed, 1, 3)


def test_a_callable_may_take_whatever_comes(task):
    settles = task(settle, lock_args=lambda *args, **kwargs: [args, kwargs])
    assert digest(settles, "a") == digest(settles, event_id="a")
    assert digest(settles, "a") != digest(settles, "a", retried=True)


def test_a_callable_of_a_task_that_takes_whatever_comes_gets_it_all(task):
    def anything(*args, **kwargs):
        pass

    anything = task(anything, lock_args=lambda *args, event_id, **kwargs: [args, event_id])
    assert digest(anything, 1, event_id=2, other=3) == digest(anything, 1, other=4, event_id=2)
    assert digest(anything, 1, event_id=2) != digest(anything, 2, event_id=2)


@pytest.mark.parametrize(
    ("builtin", "one", "other"),
    [
        (str, 1, 2),
        (max, [1, 5], [1, 6]),
        (operator.itemgetter("id"), {"id": 1}, {"id": 2}),
        (functools.partial(str.replace, "a-b", "-"), "1", "2"),
    ],
    ids=["type", "builtin", "itemgetter", "partial"],
)
def test_a_builtin_will_do(task, builtin, one, other):
    def keyed(x):
        pass

    keyed = task(keyed, lock_args=builtin)
    assert digest(keyed, one) == digest(keyed, x=one)
    assert digest(keyed, one) != digest(keyed, other)


def test_what_a_callable_returns_must_have_a_stable_form(task):
    with pytest.raises(ArgumentsError) as caught:
        digest(task(settle, lock_args=lambda event_id, payload, retried: [event_id, {1}]), "a")
    assert caught.value.argument == "lock_args(…)[1]"


@pytest.mark.parametrize("returned", [None, "", 0, [], {}], ids=repr)
def test_a_callable_that_says_nothing_makes_every_call_one(task, returned):
    settles = task(settle, lock_args=lambda event_id, payload, retried: returned)
    assert digest(settles, "a") == digest(settles, "b", 1)


@pytest.mark.parametrize("error", [KeyError("amount"), TypeError("no number"), ValueError("no"), AttributeError("id")], ids=repr)
def test_a_callable_that_raises_is_an_arguments_error_with_its_cause(task, error):
    def fails(event_id, payload, retried):
        raise error

    with pytest.raises(ArgumentsError) as caught:
        digest(task(settle, lock_args=fails), "a")
    assert caught.value.argument == "lock_args(…)"
    assert repr(error) in str(caught.value)
    assert caught.value.__cause__ is error


def test_a_callable_that_does_not_take_the_call_is_an_arguments_error(task):
    with pytest.raises(ArgumentsError, match="lock_args"):
        digest(task(settle, lock_args=lambda event_id: event_id), "a")


def test_a_callable_that_raises_publishes_nothing_and_locks_nothing(task, store):
    settles = task(settle, lock_args=lambda event_id, payload, retried: event_id + 1)
    with pytest.raises(ArgumentsError):
        settles.delay("a")
    assert store.acts == []


UNSTABLE = {
    "a set": {1, 2},
    "an object": object(),
    "nan": float("nan"),
    "a generator": (i for i in "ab"),
    "a function": settle,
    "a class": type,
    "two keys that are one": {1: "a", "1": "b"},
}


@pytest.mark.parametrize("returned", UNSTABLE.values(), ids=UNSTABLE.keys())
def test_what_a_callable_returns_without_a_stable_form_publishes_nothing_and_locks_nothing(task, store, returned):
    settles = task(settle, lock_args=lambda event_id, payload, retried: ["fine", returned])
    with pytest.raises(ArgumentsError, match=r"argument lock_args\(…\)\[1\] has no stable JSON form") as caught:
        settles.delay("a")
    assert caught.value.task == "unit.settle"
    with pytest.raises(ArgumentsError):
        settles.once_more_check(("a",), {}, {})
    assert store.acts == []


class Breaks:
    def __json__(self):
        raise LookupError("no such row")


def test_a_value_whose_own_json_form_raises_is_an_arguments_error_with_its_cause(task, store):
    settles = task(settle)
    with pytest.raises(ArgumentsError, match=r"argument payload\['row'\] has no stable JSON form: .*no such row") as caught:
        settles.delay("a", {"row": Breaks()})
    assert isinstance(caught.value.__cause__, LookupError)
    assert store.acts == []


# a callable that fails where nobody can be told: in a worker, for a message without a ticket


FAILING = {
    "it raises": lambda event_id, payload, retried: event_id + 1,
    "it returns what has no stable form": lambda event_id, payload, retried: {event_id},
}


@pytest.mark.parametrize("lock_args", FAILING.values(), ids=FAILING.keys())
def test_a_message_without_a_ticket_runs_without_a_lock_and_with_a_warning(task, store, caplog, lock_args):
    ran = []

    def body(event_id, payload=None, retried=False):
        ran.append((event_id, bool(current_lock)))

    assert deliver(task(body, lock_args=lock_args), "a") == states.SUCCESS
    assert ran == [("a", False)]
    assert store.acts == []
    (warning,) = [r.getMessage() for r in caplog.records if "runs without a lock" in r.getMessage()]
    assert warning.startswith("task unit.body[some id] runs without a lock: task 'unit.body': argument lock_args(…)")


def test_a_retry_of_a_message_that_runs_without_a_lock_asks_for_none_either(app, task, store):
    """It says so itself: its worker does not try again, and again warn of it."""
    sent = []

    def body(self, event_id):
        raise self.retry(countdown=0)

    def receive(headers, **_):
        sent.append(headers)

    signals.before_task_publish.connect(receive)
    assert deliver(task(body, bind=True, lock_args=lambda event_id: event_id + 1), "a", args=("a",), kwargs={}) == states.RETRY
    assert [is_exempt(headers["once_more"]) for headers in sent] == [True]
    assert store.acts == []


@pytest.mark.parametrize("lock_args", FAILING.values(), ids=FAILING.keys())
def test_a_name_published_where_the_task_is_known_goes_without_a_ticket_and_with_a_warning(app, task, store, caplog, lock_args):
    sent = []

    def receive(headers, **_):
        sent.append(headers)

    settles = task(settle, lock_args=lock_args)
    signals.before_task_publish.connect(receive)
    app.send_task(settles.name, ("a",))
    assert ["once_more" in headers for headers in sent] == [False]
    assert store.acts == []
    assert "published by name, goes without a ticket: task 'unit.settle': argument lock_args(…)" in caplog.text


def test_a_message_with_a_ticket_does_not_ask_the_callable(task, store):
    """What counts was decided by its publisher: a callable of newer code changes nothing for it."""
    asked = []
    settles = task(settle, lock_args=lambda event_id, payload, retried: asked.append(event_id) or event_id + 1)
    header = fresh_ticket(settles, task(settle, name="unit.before").once_more, ("a",), {}, task_id="some id", queue="celery",
                          series=5).to_header()  # fmt: skip
    assert deliver(settles, "a", once_more=header) == states.SUCCESS
    assert asked == []
    assert store.names == ["start", "finish"]


# kinds of tasks


def test_a_bound_task_does_not_count_itself(task):
    def bound(self, x, y=2):
        pass

    bound = task(bound, bind=True, lock_args=["x"])
    assert digest(bound, 1) == digest(bound, x=1, y=3)
    assert digest(bound, 1) != digest(bound, 2)


def test_a_class_based_task_does_not_count_itself(app):
    class Settle(UniqueTask):
        name = "unit.Settle"
        lock = "until_executed"
        lock_args = ("event_id",)

        def run(self, event_id, payload=None):
            pass

    settles = app.register_task(Settle())
    assert digest(settles, "a") == digest(settles, event_id="a", payload=1)
    assert digest(settles, "a") != digest(settles, "b")


def test_a_class_based_task_counts_all_arguments_and_defaults(app):
    class Settle(UniqueTask):
        name = "unit.Settle"
        lock = "until_executed"

        def run(self, event_id, payload=None):
            pass

    settles = app.register_task(Settle())
    assert digest(settles, "a") == digest(settles, "a", payload=None)
    assert digest(settles, "a") != digest(settles, "a", payload=1)


@pytest.mark.parametrize("how", ["decorated", "class-based"])
def test_autoretry_keeps_the_signature(app, task, how):
    if how == "decorated":
        settles = task(settle, autoretry_for=(Exception,), lock_args=["event_id"])
    else:

        class Settle(UniqueTask):
            name = "unit.Settle"
            lock = "until_executed"
            lock_args = ("event_id",)
            autoretry_for = (Exception,)

            def run(self, event_id, payload=None):
                pass

        settles = app.register_task(Settle())
    assert settles.run is not type(settles).run, "Celery has wrapped it"
    assert digest(settles, "a") == digest(settles, event_id="a", payload=1)
    assert digest(settles, "a") != digest(settles, "b")


class Event(BaseModel):
    id: int
    note: str | None = None


def settle_event(event: Event, payload: dict | None = None) -> int:
    return event.id


def test_a_pydantic_model_counts_as_it_is_sent(task):
    settles = task(settle_event, pydantic=True)
    assert digest(settles, Event(id=1)) == digest(settles, event={"id": 1, "note": None})
    assert digest(settles, Event(id=1)) != digest(settles, Event(id=2))
    assert digest(settles, Event(id=1)) != digest(settles, Event(id=1, note="a"))


def test_a_pydantic_argument_can_be_named(task):
    settles = task(settle_event, pydantic=True, lock_args=["event"])
    assert digest(settles, Event(id=1), {"resent": True}) == digest(settles, Event(id=1))


def test_a_callable_is_given_a_pydantic_model_as_it_is_sent(task):
    settles = task(settle_event, pydantic=True, lock_args=lambda event, payload: event["id"])
    assert digest(settles, Event(id=1, note="a")) == digest(settles, Event(id=1, note="b"))


def test_a_bound_pydantic_task_does_not_count_itself(task):
    def settle_bound(self, event: Event):
        pass

    settles = task(settle_bound, bind=True, pydantic=True)
    assert digest(settles, Event(id=1)) == digest(settles, event=Event(id=1))


def test_a_shared_task_has_one_digest_in_every_app():
    @shared_task(base=UniqueTask, lock="until_executed", name="unit.shared")
    def shared(x, y=2):
        pass

    apps = [Celery(f"unit{n}", broker="memory://", set_as_current=False) for n in range(2)]
    one, other = (app.tasks["unit.shared"] for app in apps)
    assert one is not other
    assert digest(one, 1) == digest(other, 1, y=2)


def test_tasks_of_one_function_in_two_modules_do_not_exclude_each_other(task):
    assert digest(task(settle, name="billing.settle"), "a") != digest(task(settle, name="shipping.settle"), "a")


def test_arguments_that_the_task_does_not_take_are_a_type_error_of_the_calls(task):
    with pytest.raises(TypeError) as caught:
        digest(task(settle), "a", "b", "c")
    assert not isinstance(caught.value, ArgumentsError)


def test_what_the_task_does_to_its_arguments_changes_no_digest(task):
    settles = task(settle)
    payload = {"items": [1]}
    before = fresh_ticket(settles, settles.once_more, ("a", payload), {}, task_id="i", queue=None, series=0)
    digest_before = before.digest
    payload["items"].append(2)
    assert before.digest == digest_before != digest(settles, "a", payload)


def test_where_no_argument_counts_all_calls_of_the_task_are_one(task, store):
    def settle(event_id):
        pass

    settles = task(settle, lock_args=[])
    for event_id in ("a", "b"):
        settles.delay(event_id)
    assert len({ticket.digest for ticket in store.tickets}) == 1
