"""Asking who holds a lock without publishing, and freeing exactly the holder that was seen; for each of the five locks."""

import dataclasses
import math
import pickle
from datetime import datetime, timezone

import pytest
from support.apps import unique
from support.held import holders, lapse
from support.lock_db import held
from support.stops import Stops
from support.waiting import eventually

from celery_once_more import ArgumentsError, ConfigurationError, LockInfo, StoreUnavailable

pytest_plugins = ["support.app_fixtures"]

LEASE, QUEUE_LEASE, PERIOD = 600, 6000, 3000
LOCKS = {
    "until_executing": {},
    "until_executed": {},
    "until_expired": {"lock_ttl": PERIOD},
    "until_and_while_executing": {},
    "while_executing": {},
}
WAIT = ["until_executing", "until_executed", "until_expired", "until_and_while_executing"]
RUN = ["until_executed", "until_expired", "until_and_while_executing", "while_executing"]
HOLD_IN_RUN = ["until_executed", "until_expired"]


@pytest.fixture
def app(make_app):
    return make_app(once_more_lease=LEASE, once_more_queue_lease=QUEUE_LEASE)


@pytest.fixture
def stops():
    return Stops()


@pytest.fixture
def make(app, stops):
    """``make("until_executed")`` -> a task with this lock that stops in its body until its test lets it go on."""

    def make(lock, **options):
        return unique(app, stops.body, name="app.stops", bind=True, lock=lock, **LOCKS[lock], **options)

    return make


def seconds(locks):
    """The server's clock."""
    return locks.time()[0]


def ran(task, stops, *keys):
    """Publish a call with each of these keys, and let a worker run them to their ends."""
    results = [task.delay(key) for key in keys]
    with stops.working(task.app):
        stops.open_all()
        assert [result.get(timeout=30) for result in results] == list(keys)


# What it says


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_that_nobody_holds_has_no_info(make, locks, lock):
    task = make(lock)
    assert task.lock_info("evt") is None
    assert not locks.keys(), "asking writes nothing"


@pytest.mark.parametrize("lock", WAIT)
def test_a_message_that_waits_is_the_holder(make, locks, lock):
    task = make(lock)
    before = seconds(locks)
    result = task.delay("evt")
    info = task.lock_info("evt")
    assert (info.task, info.holder, info.phase, info.token) == (task.name, result.id, "waiting", None)
    assert info.digest == held(locks)[0]
    assert info.since.tzinfo is timezone.utc
    assert before <= info.since.timestamp() <= seconds(locks)
    assert 0 < info.remaining <= (PERIOD if lock == "until_expired" else QUEUE_LEASE)


def test_a_message_that_waits_for_a_lock_of_its_start_holds_nothing(make):
    task = make("while_executing")
    task.delay("evt")
    assert task.lock_info("evt") is None


@pytest.mark.parametrize("lock", RUN)
def test_a_run_is_the_holder_with_its_fencing_token(make, stops, locks, lock):
    task = make(lock)
    before = seconds(locks)
    result = task.delay("evt")
    with stops.working(task.app):
        stops.entered(1)
        info = task.lock_info("evt")
        assert (info.holder, info.phase, info.token) == (result.id, "running", stops.tokens[0])
        assert before <= info.since.timestamp() <= seconds(locks)
        assert 0 < info.remaining <= LEASE


def test_a_run_that_stands_in_nobodys_way_is_no_holder(make, stops):
    task = make("until_executing")
    task.delay("evt")
    with stops.working(task.app):
        stops.entered(1)
        assert task.lock_info("evt") is None
        again = task.delay("evt")
        assert not again.duplicate


def test_who_waits_beside_a_run_is_the_one_whom_a_publish_would_meet(make, stops):
    task = make("until_and_while_executing")
    first = task.delay("evt")
    with stops.working(task.app):
        stops.entered(1)
        assert task.lock_info("evt").holder == first.id
        second = task.apply_async(("evt",), countdown=600)
        info = task.lock_info("evt")
        assert (info.holder, info.phase) == (second.id, "waiting")
        assert task.delay("evt").id == second.id


def test_of_a_lock_with_a_limit_one_of_its_runs_is_named(make, stops):
    task = make("while_executing", lock_limit=2)
    results = {task.delay("evt").id for _ in range(2)}
    with stops.working(task.app):
        stops.entered(2)
        info = task.lock_info("evt")
        assert info.holder in results
        assert task.release_lock(info)
        other = task.lock_info("evt")
        assert {info.holder, other.holder} == results


@pytest.mark.parametrize("lock", LOCKS)
def test_after_the_end_only_a_period_is_still_held(make, stops, lock):
    task = make(lock)
    result = task.delay("evt")
    with stops.working(task.app):
        stops.open_all()
        result.get(timeout=30)
    info = task.lock_info("evt")
    if lock != "until_expired":
        assert info is None
        return
    assert (info.holder, info.phase, info.token) == (result.id, "kept", stops.tokens[0])
    assert LEASE < info.remaining <= PERIOD


@pytest.mark.parametrize("lock", WAIT)
def test_a_holder_whose_time_is_over_is_none(make, lock):
    task = make(lock)
    task.delay("evt")
    info = task.lock_info("evt")
    lapse(task, "evt")
    assert task.lock_info("evt") is None
    assert not task.release_lock(info)


def test_a_run_whose_lease_lapsed_keeps_its_period_and_says_so(make, stops, locks):
    """A publish would be refused by it, and it can be freed."""
    task = make("until_expired")
    first = task.delay("evt")
    with stops.working(task.app):
        stops.entered(1)
        running = task.lock_info("evt")
        lapse(task, "evt")
        info = task.lock_info("evt")
        assert (info.holder, info.phase) == (first.id, "kept")
        assert not task.release_lock(running)
        assert task.release_lock(info)
        assert task.lock_info("evt") is None
        assert not task.delay("evt").duplicate


def test_a_run_that_outlasts_its_period_gives_way_to_the_one_whom_a_publish_would_meet(app, stops):
    task = unique(app, stops.body, name="app.stops", bind=True, lock="until_expired", lock_ttl=1)
    first = task.delay("evt")
    with stops.working(app):
        stops.entered(1)
        assert task.lock_info("evt").holder == first.id
        second = eventually(lambda: (again := task.apply_async(("evt",), countdown=600)) and not again.duplicate and again)
        info = task.lock_info("evt")
        assert (info.holder, info.phase) == (second.id, "waiting")


def test_it_is_the_holder_of_these_arguments_on_the_queue_that_they_go_to(make, app):
    app.conf.task_routes = [lambda name, args, kwargs, options, task=None, **_: {"queue": f"queue-{args[0]}"} if args else None]
    task = make("until_executed")
    first, second = task.delay("a"), task.delay("b")
    assert task.lock_info("a").holder == first.id
    assert task.lock_info("b").holder == second.id
    assert task.lock_info(key="a") is None, "without positional arguments it goes to another queue"


def test_arguments_that_have_no_digest_are_refused_as_by_a_publish(make):
    task = make("until_executed")
    with pytest.raises(ArgumentsError, match="argument key has no stable JSON form"):
        task.lock_info({1, 2})
    with pytest.raises(TypeError, match="missing a required argument"):
        task.lock_info()


# Freeing it


@pytest.mark.parametrize("lock", WAIT)
def test_after_a_waiting_holder_is_released_the_next_publish_is_admitted_and_both_messages_run(make, stops, told, lock):
    task = make(lock)
    first = task.delay("evt")
    info = task.lock_info("evt")
    told.clear()
    assert task.release_lock(info) is True
    ours = {"task_id": first.id, "digest": info.digest, "reason": "by hand"}
    assert told == [("lock_released", task.name, ours)]
    assert task.lock_info("evt") is None
    second = task.delay("evt")
    assert not second.duplicate
    assert task.lock_info("evt").holder == second.id
    with stops.working(task.app, concurrency=1):
        stops.open_all()
        assert first.get(timeout=30) == second.get(timeout=30) == "evt"
    assert len(stops.tokens) == 2


@pytest.mark.parametrize("lock", HOLD_IN_RUN)
def test_a_released_run_goes_on_beside_the_next_call_and_frees_nothing_of_it(make, stops, lock):
    task = make(lock)
    first = task.delay("evt")
    with stops.working(task.app):
        stops.entered(1)
        assert task.release_lock(task.lock_info("evt")) is True
        second = task.delay("evt")
        assert not second.duplicate
        stops.entered(2)
        stops.open(1)
        assert first.get(timeout=30) == "evt"
        info = task.lock_info("evt")
        assert (info.holder, info.phase, info.token) == (second.id, "running", stops.tokens[1])
        assert task.delay("evt").id == second.id
        assert stops.tokens[0] < stops.tokens[1]


@pytest.mark.parametrize("lock", RUN)
def test_a_released_runs_redelivered_copy_does_not_run_beside_it_nor_after_it(make, stops, broker, told, lock):
    task = make(lock)
    first = task.delay("evt")
    message = broker.find(first.id)
    with stops.working(task.app):
        stops.entered(1)
        assert task.release_lock(task.lock_info("evt"))
        broker.deliver_again(message)
        eventually(lambda: [what for name, _, what in told if name == "task_redelivered" and what["decision"] == "put off"])
        assert len(stops.tokens) == 1
        stops.open_all()
        assert first.get(timeout=30) == "evt"
        eventually(lambda: not holders(task, "evt"), what="the end of the run, which is after its result")
        broker.deliver_again(message)
        eventually(lambda: [what for name, _, what in told if name == "task_redelivered" and what["decision"] == "ended"])
    assert len(stops.tokens) == 1


def test_a_period_that_is_released_is_over(make, stops):
    task = make("until_expired")
    ran(task, stops, "evt")
    assert task.delay("evt").duplicate
    info = task.lock_info("evt")
    assert task.release_lock(info) is True
    assert task.release_lock(info) is False
    assert not task.delay("evt").duplicate


def test_a_released_run_does_not_keep_its_period(make, stops):
    task = make("until_expired")
    first = task.delay("evt")
    with stops.working(task.app):
        stops.entered(1)
        assert task.release_lock(task.lock_info("evt"))
        stops.open_all()
        first.get(timeout=30)
    assert task.lock_info("evt") is None


def test_a_message_whose_waiting_period_was_released_runs_under_what_is_left_of_it(make, stops):
    task = make("until_expired")
    first = task.delay("evt")
    (waiting,) = holders(task, "evt")
    assert task.release_lock(task.lock_info("evt"))
    with stops.working(task.app):
        stops.open_all()
        first.get(timeout=30)
    (kept,) = holders(task, "evt")
    assert (kept.task_id, kept.phase) == (first.id, "K")
    assert kept.until == waiting.until, "the end of its period"


# What is not any more as it was seen


@pytest.mark.parametrize("lock", WAIT)
def test_an_info_frees_its_holder_once(make, lock):
    task = make(lock)
    task.delay("evt")
    info = task.lock_info("evt")
    assert task.release_lock(info) is True
    assert task.release_lock(info) is False


@pytest.mark.parametrize("lock", WAIT)
def test_a_replaced_holder_frees_nothing_of_the_next(make, told, lock):
    task = make(lock)
    task.delay("evt")
    info = task.lock_info("evt")
    task.release_lock(info)
    second = task.delay("evt")
    told.clear()
    assert task.release_lock(info) is False
    assert told == []
    assert task.lock_info("evt").holder == second.id


@pytest.mark.parametrize("lock", WAIT)
def test_one_id_published_again_is_another_holder(make, lock):
    task = make(lock)
    task.apply_async(("evt",), task_id="one")
    info = task.lock_info("evt")
    task.release_lock(info)
    task.apply_async(("evt",), task_id="one")
    assert task.release_lock(info) is False
    assert task.lock_info("evt").holder == "one"


@pytest.mark.parametrize("lock", ["until_executed", "until_expired", "until_and_while_executing"])
def test_one_that_was_seen_to_wait_is_not_freed_while_it_runs(make, stops, lock):
    task = make(lock)
    first = task.delay("evt")
    waiting = task.lock_info("evt")
    with stops.working(task.app):
        stops.entered(1)
        assert task.release_lock(waiting) is False
        assert task.lock_info("evt").holder == first.id


@pytest.mark.parametrize("lock", RUN)
def test_one_that_was_seen_to_run_is_not_freed_after_its_end_nor_is_the_next_run(make, stops, lock):
    task = make(lock)
    first = task.delay("evt")
    with stops.working(task.app):
        stops.entered(1)
        running = task.lock_info("evt")
        stops.open(1)
        first.get(timeout=30)
        eventually(lambda: (info := task.lock_info("evt")) is None or info.phase == "kept", what="the end of the run")
        assert task.release_lock(running) is False
        if lock == "until_expired":
            assert task.release_lock(task.lock_info("evt"))
        second = task.delay("evt")
        stops.entered(2)
        assert task.release_lock(running) is False
        assert task.lock_info("evt").holder == second.id


@pytest.mark.parametrize("lock", RUN)
def test_neither_what_ran_nor_what_waited_before_a_retry_is_freed_after_it(make, stops, lock):
    task = make(lock)
    stops.ends[1] = lambda task: task.retry(countdown=0)
    first = task.delay("evt")
    seen = [task.lock_info("evt")]
    with stops.working(task.app):
        stops.entered(1)
        seen.append(task.lock_info("evt"))
        stops.open(1)
        stops.entered(2)
        assert [task.release_lock(info) for info in seen if info is not None] == [False] * len([i for i in seen if i])
        info = task.lock_info("evt")
        assert (info.holder, info.phase, info.token) == (first.id, "running", stops.tokens[1])


@pytest.mark.parametrize("lock", WAIT)
def test_one_that_waited_before_a_retry_is_not_freed_while_the_retry_waits(make, stops, lock):
    task = make(lock)
    stops.ends[1] = lambda task: task.retry(countdown=600)
    first = task.delay("evt")
    waited = task.lock_info("evt")
    with stops.working(task.app):
        stops.open(1)
        eventually(lambda: first.state == "RETRY")
        again = eventually(lambda: task.lock_info("evt"))
        assert (again.holder, again.phase, again.token) == (first.id, "waiting", stops.tokens[0])
        assert task.release_lock(waited) is False
        assert task.release_lock(again) is True


# What goes wrong


def test_a_task_without_a_lock_has_no_info(app, stops):
    task = unique(app, stops.body, name="app.stops", bind=True, lock=None)
    with pytest.raises(ConfigurationError, match=r"task 'app.stops' has no lock; give it lock="):
        task.lock_info("evt")


def test_a_store_that_is_away_is_said_both_times(make_app, stops, lock_server):
    task = unique(make_app(once_more_redis_url=lock_server.url(0)), stops.body, name="app.stops", bind=True)
    task.delay("evt")
    info = task.lock_info("evt")
    lock_server.kill()
    with pytest.raises(StoreUnavailable):
        task.lock_info("evt")
    with pytest.raises(StoreUnavailable):
        task.release_lock(info)


# The value


def test_an_info_is_frozen_and_survives_pickling(make):
    task = make("until_executed")
    task.delay("evt")
    info = task.lock_info("evt")
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.holder = "another"
    copy = pickle.loads(pickle.dumps(info))
    assert isinstance(copy, LockInfo)
    assert copy == info
    assert task.release_lock(copy) is True


def test_an_info_shows_what_a_person_needs_and_nothing_else(make, stops):
    task = make("until_executed")
    first = task.delay("evt")
    with stops.working(task.app):
        stops.entered(1)
        info = task.lock_info("evt")
    assert repr(info) == (
        f"LockInfo(task='app.stops', digest={info.digest!r}, holder={first.id!r}, phase='running', "
        f"since={info.since!r}, remaining={info.remaining!r}, token={stops.tokens[0]})"
    )


def test_since_is_on_the_servers_clock_to_the_second(make, locks):
    task = make("until_executed")
    task.delay("evt")
    since = task.lock_info("evt").since
    assert since == datetime.fromtimestamp(math.floor(since.timestamp()), timezone.utc)
