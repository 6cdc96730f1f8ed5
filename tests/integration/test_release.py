"""``current_lock.release()``: a run gives its lock up before its end, and goes on."""

import pytest
from celery import Task
from support.apps import unique, working
from support.held import holders, lapse
from support.lock_db import held
from support.stops import Stops
from support.waiting import eventually

from celery_once_more import LockLost, StoreUnavailable, current_lock

pytest_plugins = ["support.app_fixtures"]

LEASE, PERIOD = 600, 3000
LOCKS = {
    "until_executing": {},
    "until_executed": {},
    "until_expired": {"lock_ttl": PERIOD},
    "until_and_while_executing": {},
    "while_executing": {},
}
HOLD_IN_RUN = ["until_executed", "until_expired"]


@pytest.fixture
def app(make_app):
    return make_app(once_more_lease=LEASE)


@pytest.fixture
def stops():
    return Stops()


@pytest.fixture
def make(app, stops):
    """``make("until_executed")`` -> a task whose first run releases its lock, notes what it sees, and then stops."""

    def make(lock, base_app=app, **options):
        stops.starts[1] = lambda _: stops.seen.append(current_lock.release())
        return unique(base_app, stops.body, name="app.stops", bind=True, lock=lock, **LOCKS[lock], **options)

    return make


@pytest.mark.parametrize("lock", HOLD_IN_RUN)
def test_afterwards_a_publish_of_the_same_call_is_admitted_and_runs_beside_it(make, stops, told, lock):
    task = make(lock)
    first = task.delay("evt")
    with stops.working(task.app):
        stops.entered(1)
        assert stops.seen == [True]
        (what,) = [what for name, _, what in told if name == "lock_released"]
        assert what == {"task_id": first.id, "digest": what["digest"], "reason": "by its run"}
        second = task.delay("evt")
        assert not second.duplicate
        stops.entered(2)
        assert task.delay("evt").id == second.id
        assert stops.tokens[0] < stops.tokens[1]


@pytest.mark.parametrize("lock", ["until_and_while_executing", "while_executing"])
def test_afterwards_the_next_call_starts_beside_it(make, stops, lock):
    task = make(lock)
    results = [task.delay("evt")]
    with stops.working(task.app):
        stops.entered(1)
        assert stops.seen == [True]
        results.append(task.delay("evt"))
        stops.entered(2)
        stops.open_all()
        assert [result.get(timeout=30) for result in results] == ["evt"] * 2


@pytest.mark.parametrize("lock", LOCKS)
def test_afterwards_check_says_so_and_a_second_release_frees_nothing(make, stops, lock):
    task = make(lock)

    def look(_):
        kept = current_lock.remaining > 0
        current_lock.check()
        released = [current_lock.release(), current_lock.release()]
        with pytest.raises(LockLost, match="it was freed before the end of its run") as caught:
            current_lock.check()
        lost = (caught.value.task, caught.value.digest) == (task.name, current_lock.digest)
        stops.seen.append([kept, *released, lost, current_lock.remaining, bool(current_lock), current_lock.fencing_token])

    stops.starts[1] = look
    first = task.delay("evt")
    with stops.working(task.app):
        stops.open_all()
        assert first.get(timeout=30) == "evt"
    assert stops.seen == [[True, True, False, True, 0.0, True, stops.tokens[0]]]


@pytest.mark.parametrize("lock", HOLD_IN_RUN)
def test_the_end_of_the_run_frees_nothing_of_the_next_holder(make, stops, told, lock):
    task = make(lock)
    first = task.delay("evt")
    with stops.working(task.app):
        stops.entered(1)
        second = task.delay("evt")
        stops.entered(2)
        stops.open(1)
        assert first.get(timeout=30) == "evt"
        eventually(lambda: len(holders(task, "evt")) == 1, what="the end of the first run")
        assert task.lock_info("evt").holder == second.id
        assert task.delay("evt").duplicate
    freed = [what["reason"] for name, _, what in told if name == "lock_released" and what["task_id"] == first.id]
    assert freed == ["by its run"], "it was told when it was freed"


@pytest.mark.parametrize("lock", HOLD_IN_RUN)
def test_the_end_of_the_run_leaves_nothing_behind_not_even_a_period(make, stops, locks, lock):
    task = make(lock)
    first = task.delay("evt")
    with stops.working(task.app):
        stops.open_all()
        first.get(timeout=30)
    assert not held(locks)


@pytest.mark.parametrize("lock", HOLD_IN_RUN)
def test_the_keeper_renews_the_run_and_does_not_take_the_lock_back(make_app, make, stops, lock):
    task = make(lock, make_app(once_more_lease=1))
    task.delay("evt")
    with stops.working(task.app):
        stops.entered(1)
        (before,) = holders(task, "evt")
        assert before.phase == "F"
        eventually(lambda: holders(task, "evt")[0].until > before.until + 2000, what="some beats of the keeper")
        assert [holder.phase for holder in holders(task, "evt")] == ["F"]
        assert not task.delay("evt").duplicate


@pytest.mark.parametrize("lock", LOCKS)
def test_a_redelivered_copy_does_not_run_beside_it(make, stops, broker, told, lock):
    task = make(lock)
    first = task.delay("evt")
    message = broker.find(first.id)
    with stops.working(task.app):
        stops.entered(1)
        broker.deliver_again(message)
        eventually(lambda: [what for name, _, what in told if name == "task_redelivered" and what["decision"] == "put off"])
    assert len(stops.tokens) == 1


@pytest.mark.parametrize("lock", LOCKS)
def test_a_retry_afterwards_runs_under_its_lock_again(make, stops, locks, lock):
    task = make(lock)
    stops.ends[1] = lambda task: task.retry(countdown=0)
    stops.starts[2] = lambda _: current_lock.check()
    first = task.delay("evt")
    with stops.working(task.app):
        stops.open_all()
        assert first.get(timeout=30) == "evt"
    assert len(stops.tokens) == 2
    assert stops.tokens[0] < stops.tokens[1]
    assert not held(locks)


@pytest.mark.parametrize("lock", HOLD_IN_RUN)
def test_a_retry_afterwards_waits_for_the_call_that_was_let_in_meanwhile(make, make_app, stops, told, lock):
    task = make(lock, make_app(once_more_lease=1))
    stops.ends[1] = lambda task: task.retry(countdown=0)
    first = task.delay("evt")
    with stops.working(task.app):
        stops.entered(1)
        second = task.delay("evt")
        stops.entered(2)
        stops.open(1)
        eventually(lambda: [what for name, _, what in told if name == "lock_conflict" and what["task_id"] == first.id])
        assert len(stops.tokens) == 2
        stops.open_all()
        assert second.get(timeout=30) == first.get(timeout=30) == "evt"
    assert len(stops.tokens) == 3


def test_a_run_that_publishes_itself_after_its_release_is_no_duplicate(make, stops, caplog):
    task = make("until_executed")

    def again(task):
        stops.seen.append(current_lock.release())
        stops.seen.append(task.delay("evt"))

    stops.starts[1] = again
    first = task.delay("evt")
    with stops.working(task.app):
        stops.open_all()
        assert first.get(timeout=30) == "evt"
        released, second = stops.seen
        assert released
        assert not second.duplicate
        assert second.get(timeout=30) == "evt"
    assert "duplicate of itself" not in caplog.text


def test_a_run_that_was_outlived_releases_nothing_of_its_successor(make, stops):
    task = make("until_executed")
    stops.starts.clear()
    stops.ends[1] = lambda _: current_lock.release()
    first = task.delay("evt")
    with stops.working(task.app):
        stops.entered(1)
        lapse(task, "evt")
        second = task.delay("evt")
        stops.entered(2)
        stops.open(1)
        assert first.get(timeout=30) is False
        assert task.lock_info("evt").holder == second.id


def test_a_store_that_is_away_is_said(make_app, stops, lock_server):
    task = unique(make_app(once_more_redis_url=lock_server.url(0)), stops.body, name="app.stops", bind=True)
    stops.ends[1] = lambda _: current_lock.release()
    first = task.delay("evt")
    with stops.working(task.app):
        stops.entered(1)
        lock_server.kill()
        stops.open(1)
        with pytest.raises(StoreUnavailable):
            first.get(timeout=30)


# where there is no lock


def gives_up():
    return current_lock.release()


def test_outside_of_tasks_there_is_nothing_to_release():
    assert current_lock.release() is False


@pytest.mark.parametrize("options", [{"base": Task, "lock": None}, {"lock": None}], ids=["plain", "without a lock"])
def test_in_a_task_without_a_lock_there_is_nothing_to_release(make_app, nowhere, options):
    task = unique(make_app(once_more_redis_url=nowhere), gives_up, **options)
    result = task.delay()
    with working(task.app):
        assert result.get(timeout=30) is False


def test_in_a_call_without_its_lock_there_is_nothing_to_release(make_app, nowhere):
    task = unique(make_app(once_more_redis_url=nowhere), gives_up)
    result = task.apply_async(lock=None)
    with working(task.app):
        assert result.get(timeout=30) is False


def test_in_eager_mode_and_in_a_direct_call_there_is_nothing_to_release(make_app, nowhere):
    app = make_app(once_more_redis_url=nowhere)
    task = unique(app, gives_up)
    assert task() is False
    assert task.apply().get() is False
    app.conf.task_always_eager = True
    assert task.delay().get() is False


def test_a_task_that_is_called_directly_inside_a_run_has_nothing_to_release(make_app):
    """``current_lock`` is the lock of Celery's ``current_task``."""
    app = make_app()
    inner = unique(app, gives_up)

    def body(self):
        return [inner(), current_lock.release()]

    outer = unique(app, body, bind=True)
    result = outer.delay()
    with working(app):
        assert result.get(timeout=30) == [False, True]
