"""A message that only a worker's memory has is known to its keeper, which vouches for it; a worker that is gone does not."""

import pytest
from support import held
from support.apps import unique, working
from support.orphans import never_sent, passes_until_freed
from support.stops import Stops
from support.waiting import eventually

from celery_once_more.reaper import reap
from celery_once_more.runtime import runtime

pytest_plugins = ["support.app_fixtures"]


@pytest.fixture
def app(make_app):
    return make_app(once_more_lease=1, worker_prefetch_multiplier=4)


@pytest.fixture
def stops():
    return Stops()


def settle(key):
    return key


def taken(clean_redis, n):
    """Wait until workers have this many messages in their hands, and let the broker forget everything."""
    broker = clean_redis.client(0)
    eventually(lambda: broker.hlen("unacked") == n and not broker.exists("celery"), what="messages in a worker's hands")
    broker.delete("unacked", "unacked_index")


def test_what_is_reserved_behind_a_running_task_is_kept_and_runs(app, stops, clean_redis):
    busy = unique(app, stops.body, name="app.busy", bind=True, acks_late=True)
    task = unique(app, settle, name="app.task")
    busy.delay("busy")
    with stops.working(app, concurrency=1):
        stops.entered(1)
        first = task.delay("evt")
        taken(clean_redis, 2)
        never_sent(task, "orphan")
        passes_until_freed(task, "orphan")
        assert held.holder(task, "evt").task_id == first.id
        stops.open(1)
        assert first.get(timeout=30) == "evt"
        eventually(lambda: held.free(task, "evt"))


def test_what_waits_for_its_rate_limit_is_kept_while_its_worker_lives(app, clean_redis):
    task = unique(app, settle, name="app.task", rate_limit="1/h")
    with working(app):
        first = task.delay("first")
        assert first.get(timeout=30) == "first"
        second = task.delay("evt")
        taken(clean_redis, 1)
        never_sent(task, "orphan")
        passes_until_freed(task, "orphan")
        assert held.holder(task, "evt").task_id == second.id
    assert passes_until_freed(task, "evt") == 1


def test_what_a_worker_holds_until_its_eta_is_kept(app, clean_redis):
    """Its ETA is over for the reaper, whose clock is the store's, and not yet for its worker."""
    task = unique(app, settle, name="app.task")
    with working(app):
        first = task.apply_async(("evt",), countdown=3600)
        taken(clean_redis, 1)
        assert task.release_lock(task.lock_info("evt"))
        never_sent(task, "evt", task_id=first.id)
        never_sent(task, "orphan")
        passes_until_freed(task, "orphan")
        assert held.holder(task, "evt").task_id == first.id


def test_what_a_worker_took_and_has_not_read_is_kept_and_runs(make_app, stops, clean_redis):
    """It asked for one message more while it waited for an ETA. Now it runs, its prefetch is full: the answer stands unread."""
    app = make_app(once_more_lease=1, worker_prefetch_multiplier=1, broker_transport_options={"polling_interval": 5})
    busy = unique(app, stops.body, name="app.busy", bind=True, acks_late=True)
    task = unique(app, settle, name="app.task")
    broker = clean_redis.client(0)
    with stops.working(app, concurrency=1):
        busy.apply_async(("busy",), countdown=1)
        stops.entered(1)
        assert app.control.ping(limit=1, timeout=10)  # its loop has turned since
        first = task.delay("evt")
        eventually(lambda: not broker.exists("celery"), what="a message that was taken")
        assert broker.hlen("unacked") == 1  # the one that runs
        suspects = runtime(app).store.suspects
        for _ in range(3):
            assert reap(app).orphaned == 0
            eventually(lambda: not suspects.noted(), what="a worker that vouches for it")
        assert held.holder(task, "evt").task_id == first.id
        never_sent(task, "orphan")
        stops.open(1)
        assert first.get(timeout=30) == "evt"
        passes_until_freed(task, "orphan")
        eventually(lambda: held.free(task, "evt"))


def test_an_orphan_is_freed_only_when_each_worker_that_lives_was_asked_after_the_first_look(make_app):
    app = make_app(once_more_lease=600)
    task = unique(app, settle, name="app.task")
    suspects = runtime(app).store.suspects
    for worker in ("one", "two"):
        assert suspects.ask(worker, lease_ms=600_000).suspects == []
    never_sent(task, "evt")
    never_sent(task, "known")

    def passes():
        began = held.now_ms(task)
        while held.now_ms(task) < began + 1500:
            assert reap(app).orphaned == 0

    passes()
    asked = {worker: suspects.ask(worker, lease_ms=600_000) for worker in ("one", "two")}
    (known,) = [w for w in asked["one"].suspects if w.digest == held.digest(task, "known")]
    suspects.vouch("one", asked["one"], [], lease_ms=600_000)
    passes()
    suspects.vouch("two", asked["two"], [known], lease_ms=600_000)
    assert reap(app).orphaned == 1
    assert held.free(task, "evt")
    assert held.holder(task, "known")
