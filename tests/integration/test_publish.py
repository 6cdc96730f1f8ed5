"""What a publish does to the broker and the lock store, what it returns, and what it raises."""

import logging
import pickle
import signal

import pytest
from kombu.exceptions import EncodeError
from support.apps import unique
from support.commands import commands_of
from support.lock_db import held
from support.waiting import eventually

from celery_once_more import ArgumentsError, ConfigurationError, LockConflict, StoreUnavailable, UniqueResult, signals
from celery_once_more.reaper import ReapReport, reap

pytest_plugins = ["support.app_fixtures"]


def settle(event_id, payload=None):
    return event_id


def names(told):
    return [name for name, _, _ in told]


# What it returns


def test_a_result_survives_pickling_with_what_it_says_of_the_duplicate(make_app):
    task = unique(make_app(), settle)
    task.app.set_current()  # results find their app again by this
    first, again = task.delay("evt"), task.delay("evt")
    for result in (first, again):
        copy = pickle.loads(pickle.dumps(result))
        assert isinstance(copy, UniqueResult)
        assert (copy.id, copy.duplicate) == (result.id, result.duplicate)
    assert (first.duplicate, again.duplicate) == (False, True)


def test_raise_on_the_publishing_side_hands_the_caller_a_lock_conflict_and_publishes_nothing(make_app, broker):
    task = unique(make_app(), settle, on_conflict="raise")
    first = task.delay("evt")
    with pytest.raises(LockConflict) as caught:
        task.delay("evt")
    assert (caught.value.task, caught.value.holder) == (task.name, first.id)
    assert len(caught.value.digest) == 22
    assert len(broker.waiting()) == 1


def test_on_conflict_and_lock_can_be_given_with_one_call(make_app, broker, locks):
    task = unique(make_app(), settle)
    task.delay("evt")
    with pytest.raises(LockConflict):
        task.apply_async(("evt",), on_conflict="raise")
    with pytest.raises(LockConflict):
        task.signature(("evt",)).set(on_conflict={"client": "raise"}).delay()
    assert not task.apply_async(("evt",), lock=None).duplicate
    assert len(broker.waiting()) == 2
    assert len(held(locks)) == 1


def test_a_wrong_option_given_with_a_call_is_refused_and_nothing_is_published(make_app, broker, locks):
    task = unique(make_app(), settle)
    with pytest.raises(ConfigurationError, match="did you mean 'raise'"):
        task.apply_async(("evt",), on_conflict="rais")
    with pytest.raises(ConfigurationError, match="lock_ttl makes no sense with lock='until_executed'"):
        task.apply_async(("evt",), lock_ttl=5)
    assert broker.empty()
    assert not locks.keys()


@pytest.mark.parametrize("value", [object(), {1, 2} and (lambda: 1), float("nan")], ids=["object", "function", "nan"])
def test_an_argument_without_a_stable_form_is_named_and_nothing_is_published_or_locked(make_app, broker, locks, value):
    task = unique(make_app(), settle)
    with pytest.raises(ArgumentsError, match=r"argument payload\['items'\]\[1\] has no stable JSON form") as caught:
        task.delay("evt", payload={"items": [1, value]})
    assert caught.value.task == task.name
    assert broker.empty()
    assert not locks.keys()


def test_arguments_that_do_not_fit_the_function_are_celerys_error_and_lock_nothing(make_app, broker, locks):
    task = unique(make_app(), settle)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        task.delay()
    assert broker.empty()
    assert not locks.keys()


def test_a_ticket_that_a_caller_puts_into_the_headers_is_not_sent(make_app, broker):
    """Neither a forged one nor one that was copied from a request."""
    task = unique(make_app(), settle)
    own = {"once_more": {"v": 1, "lock": None}, "once_more_run": "forged", "trace": "kept"}
    task.apply_async(("evt",), headers=own)
    headers = broker.waiting()[0]["headers"]
    assert headers["once_more"]["lock"] == "until_executed"
    assert "once_more_run" not in headers
    assert headers["trace"] == "kept"
    assert own["once_more"] == {"v": 1, "lock": None}


# What it costs


def test_a_publish_is_one_evalsha_and_a_refused_one_as_well_without_a_word_to_the_broker(
    make_app, broker, clean_redis, lock_server
):
    task = unique(make_app(once_more_redis_url=lock_server.url(0)), settle)
    task.delay("warm-up: connections, and the script")
    with commands_of(lock_server) as to_locks, commands_of(clean_redis, db=0) as to_broker:
        assert not task.delay("evt").duplicate
    assert to_locks == ["EVALSHA"]
    assert "LPUSH" in to_broker
    with commands_of(lock_server) as to_locks, commands_of(clean_redis, db=0) as to_broker:
        assert task.delay("evt").duplicate
    assert to_locks == ["EVALSHA"]
    assert to_broker == []


# The lock store is away


def test_an_outage_is_raised_to_the_publisher_and_nothing_is_published(make_app, broker, nowhere, told):
    task = unique(make_app(once_more_redis_url=nowhere), settle)
    with pytest.raises(StoreUnavailable) as caught:
        task.delay("evt")
    assert caught.value.__cause__ is not None
    assert broker.empty()
    assert names(told) == ["store_unavailable"]


def test_proceed_publishes_without_a_lock_and_says_so(make_app, broker, nowhere, told, caplog):
    task = unique(make_app(once_more_redis_url=nowhere, once_more_on_outage="proceed"), settle)
    result = task.delay("evt")
    assert not result.duplicate
    assert broker.find(result.id)["headers"].get("once_more") is None
    (name, sender, what), *more = told
    assert (name, sender, more) == ("store_unavailable", task.name, [])
    assert (what["task_id"], what["act"]) == (result.id, "acquire")
    assert isinstance(what["error"], StoreUnavailable)
    (warning,) = (r for r in caplog.records if result.id in r.getMessage())
    assert warning.levelno == logging.WARNING
    assert "published without a lock" in warning.getMessage()


def test_the_task_goes_over_the_setting_and_the_call_over_the_task(make_app, broker, nowhere):
    raises = make_app(once_more_redis_url=nowhere)
    task = unique(raises, settle, on_outage="proceed")
    assert task.delay("evt")
    with pytest.raises(StoreUnavailable):
        task.apply_async(("evt",), on_outage="raise")

    proceeds = make_app(once_more_redis_url=nowhere, once_more_on_outage="proceed")
    task = unique(proceeds, settle, on_outage="raise")
    with pytest.raises(StoreUnavailable):
        task.delay("evt")
    assert task.apply_async(("evt",), on_outage="proceed")
    assert len(broker.waiting()) == 2


def test_a_store_that_takes_connections_and_never_answers_does_not_hold_a_publisher_for_ever(make_app, broker, lock_server):
    """With the defaults, which end it in seconds; pytest's own timeout is what would fail here."""
    task = unique(make_app(once_more_redis_url=lock_server.url(0)), settle)
    task.delay("warm-up")
    lock_server.signal(signal.SIGSTOP)  # the kernel still takes connections
    with pytest.raises(StoreUnavailable, match=r"[Tt]imeout"):
        task.delay("evt")
    assert len(broker.waiting()) == 1


# Signals and log lines of a publisher


def test_admitted_and_refused_are_told_with_task_digest_and_holder(make_app, told, caplog):
    caplog.set_level(logging.INFO, "celery_once_more")
    task = unique(make_app(), settle)
    first = task.delay("evt")
    with pytest.raises(LockConflict):
        task.apply_async(("evt",), on_conflict="raise", task_id="two")
    task.apply_async(("evt",), task_id="three")
    taken, raised, dropped = told
    digest = taken[2]["digest"]
    assert taken == ("lock_acquired", task.name, {"task_id": first.id, "digest": digest, "phase": "waiting", "token": None})
    same = {"digest": digest, "holder": first.id, "phase": "waiting", "side": "client"}
    assert raised == ("lock_conflict", task.name, {"task_id": "two", "decision": "LockConflict raised", **same})
    assert dropped == ("lock_conflict", task.name, {"task_id": "three", "decision": "dropped", **same})
    line = next(r.getMessage() for r in caplog.records if "three" in r.getMessage())
    for part in (task.name, digest, first.id, "dropped"):
        assert part in line


def test_a_publish_that_fails_frees_its_lock_and_tells_both(make_app, broker, locks, told):
    """The payload does not count for the lock, and cannot be sent."""
    task = unique(make_app(), settle, lock_args=["event_id"])
    with pytest.raises(EncodeError):
        task.apply_async(("evt", object()), task_id="evt_1")
    assert broker.empty()
    assert not held(locks)
    (name, sender, what), *more = told
    assert (name, sender, what["task_id"], what["reason"], more) == ("lock_released", task.name, "evt_1", "publish failed", [])


def test_receivers_that_raise_break_no_publish(make_app, broker):
    def bad(**_):
        raise RuntimeError("a receiver that raises")

    task = unique(make_app(), settle)
    ours = (signals.lock_acquired, signals.lock_conflict)
    for one in ours:
        one.connect(bad)
    try:
        assert not task.delay("evt").duplicate
        assert task.delay("evt").duplicate
    finally:
        for one in ours:
            one.disconnect(bad)
    assert len(broker.waiting()) == 1


# The reaper


def test_reap_frees_what_lapsed_and_counts_it_per_task(make_app, locks, told):
    app = make_app(once_more_queue_lease=0.1)
    one, two = unique(app, settle), unique(app, settle, name="app.other")
    lapsing = [one.delay("a"), one.delay("b"), two.delay("a")]
    kept = unique(make_app(), settle, name="app.kept")
    kept.delay("a")
    assert len(held(locks)) == 4
    told.clear()

    eventually(lambda: two.lock_info("a") is None, what="the end of the last queue lease, on the store's clock")
    report = reap(app)
    assert isinstance(report, ReapReport)
    assert {name: (counts.lapsed, counts.kept) for name, counts in report.tasks.items()} == {
        one.name: (2, 0),
        two.name: (1, 0),
        kept.name: (0, 1),
    }
    assert (report.lapsed, report.orphaned, report.kept, report.unreadable) == (3, 0, 1, [])
    assert len(held(locks)) == 1
    assert names(told) == ["lock_reaped"] * 3
    assert {(sender, what["task_id"], what["phase"]) for _, sender, what in told} == {
        (one.name, lapsing[0].id, "waiting"),
        (one.name, lapsing[1].id, "waiting"),
        (two.name, lapsing[2].id, "waiting"),
    }
