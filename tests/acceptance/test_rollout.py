"""Code that changes while messages are in flight: what becomes of them, and of the locks that are held (docs/rollout.md)."""

from itertools import permutations

import pytest
from celery import Celery, _state
from celery.signals import before_task_publish
from support.apps import unique, working
from support.lock_db import held
from support.stops import Stops
from support.waiting import eventually

from celery_once_more import DuplicateDropped, signals

pytest_plugins = ["support.floor", "support.app_fixtures"]


# Workers of two versions: processes of their own


@pytest.fixture
def publisher(floor):
    """``publisher("locked")`` -> the task as a program with this version of the code publishes it."""
    import shop_rollout

    apps = []

    def make(version):
        conf = floor.shop.app.conf
        app = Celery(floor.shop.app.main, broker=conf.broker_url, backend=conf.result_backend, set_as_current=False)
        app.conf.update(once_more_redis_url=conf.once_more_redis_url, result_expires=600)
        apps.append(app)
        return shop_rollout.define(app, version)

    yield make
    for app in apps:
        app.close()


@pytest.fixture
def start_version(start_worker):
    """``start_version("locked")`` -> the process of a worker with this version, which runs two tasks at once."""

    def start(version, concurrency=2):
        return start_worker("-c", str(concurrency), app="shop_rollout", env={"SHOP_VERSION": version}).container

    return start


def test_messages_from_before_the_lock_take_it_at_their_start_and_their_duplicates_are_dropped(floor, publisher, start_version):
    before, after = publisher("plain"), publisher("locked")
    first, other = before.delay("a"), before.delay("b")
    start_version("locked")
    floor.running("a")
    floor.running("b")
    assert floor.runs("a")[0]["token"]
    again = after.delay("a")
    assert (again.duplicate, again.id) == (True, first.id)
    floor.gates.open("b:1")
    assert other.get(timeout=60) == "b"
    third = before.delay("a")
    eventually(third.ready, within=60)
    assert third.state == "REVOKED"
    assert third.result.holder == first.id
    floor.gates.open("a:1")
    assert first.get(timeout=60) == "a"
    floor.settled()
    assert len(floor.runs("a")) == 1
    assert floor.free()


def test_a_run_from_before_the_lock_has_none_and_a_locked_call_runs_beside_it_once(floor, publisher, start_version):
    """For as long as workers of both kinds are there."""
    start_version("plain", concurrency=1)
    old = publisher("plain").delay("a")
    floor.running("a")
    start_version("locked")
    after = publisher("locked")
    new = after.delay("a")
    assert not new.duplicate
    floor.running("a", 2)
    assert floor.runs("a")[0]["token"] is None
    assert floor.runs("a")[1]["token"]
    assert after.delay("a").duplicate
    floor.gates.open_all()
    assert old.get(timeout=60) == new.get(timeout=60) == "a"
    floor.settled()
    assert len(floor.runs("a")) == 2
    assert floor.free()


def test_with_the_lock_switched_off_a_ticket_in_flight_still_frees_its_lock(floor, publisher, start_version):
    """The task is still a ``UniqueTask``. New calls ask for nothing, and run beside the locked one."""
    before, after = publisher("locked"), publisher("unlocked")
    first = before.delay("a")
    start_version("unlocked")
    floor.running("a")
    assert floor.runs("a")[0]["token"]
    second = after.delay("a")
    assert not second.duplicate
    floor.running("a", 2)
    assert floor.runs("a")[1]["token"] is None
    again = before.delay("a")
    assert (again.duplicate, again.id) == (True, first.id), "whoever still asks is answered"
    floor.gates.open("a:2")
    assert second.get(timeout=60) == "a"
    assert before.lock_info("a").holder == first.id
    floor.gates.open("a:1")
    assert first.get(timeout=60) == "a"
    floor.settled()
    assert floor.free()


def test_with_the_lock_switched_off_a_retry_still_carries_its_lock_on(floor, publisher, start_version):
    before = publisher("locked")
    first = before.delay("a", retry=True)
    start_version("unlocked")
    floor.gates.open("a:1")
    floor.running("a", 2)
    assert all(run["token"] for run in floor.runs("a"))
    assert before.lock_info("a").holder == first.id
    floor.gates.open("a:2")
    assert first.get(timeout=60) == "a"
    floor.settled()
    assert floor.free()


def test_a_call_without_a_lock_meets_the_locks_of_workers_that_have_it(floor, publisher, start_version):
    """It has no ticket, so such a worker asks for its lock."""
    first = publisher("locked").delay("a")
    start_version("locked")
    floor.running("a")
    second = publisher("unlocked").delay("a")
    with pytest.raises(DuplicateDropped):
        second.get(timeout=60)
    floor.gates.open("a:1")
    assert first.get(timeout=60) == "a"
    floor.settled()
    assert len(floor.runs("a")) == 1
    assert floor.free()


def test_in_a_worker_whose_task_is_plain_a_ticket_is_not_seen_and_its_lock_stays_until_it_is_freed(
    floor, publisher, start_version
):
    """Also after a rollback to code without the package's class. The lock hinders only those who ask."""
    before, after = publisher("locked"), publisher("plain")
    first = before.delay("a")
    start_version("plain")
    floor.gates.open_all()
    assert first.get(timeout=60) == "a"
    floor.settled()
    assert floor.runs("a")[0]["token"] is None
    assert after.delay("a").get(timeout=60) == "a"
    again = before.delay("a")
    assert (again.duplicate, again.id) == (True, first.id)
    info = before.lock_info("a")
    assert info.phase == "waiting"
    assert before.release_lock(info)
    assert not before.delay("a").duplicate
    floor.settled()


def test_a_retry_from_a_worker_whose_task_is_plain_takes_the_lock_of_its_ticket_over(floor, publisher, start_version):
    task = publisher("locked")
    first = task.delay("a", retry=True)
    old = start_version("plain", concurrency=1)
    floor.running("a")
    start_version("locked")
    old.kill("SIGTERM")
    floor.gates.open("a:1")
    floor.running("a", 2)
    assert [bool(run["token"]) for run in floor.runs("a")] == [False, True]
    assert task.delay("a").id == first.id
    floor.gates.open("a:2")
    assert first.get(timeout=60) == "a"
    floor.settled()
    assert floor.free()


# One change, seen by workers in this process


@pytest.fixture
def stops():
    return Stops()


@pytest.fixture
def version(make_app, stops):
    """``version(lock="while_executing")`` -> one task, in an app with this version of its code; leases are short."""

    def make(name="app.rolled", app=None, **options):
        options = {"lock": "until_executed", "bind": True, "reschedule_countdown": 0.5, "name": name, **options}
        return unique(app or make_app(once_more_lease=1), stops.body, **options)

    return make


CHANGES = {"lock_args": {"lock_args": ["key"]}, "lock_scope": {"lock_scope": "billing"}, "queues": {"unique_across_queues": True}}


@pytest.mark.parametrize("new_first", [False, True], ids=["old first", "new first"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_of_what_counts_lets_one_more_call_in_and_every_lock_is_freed_by_its_own_ticket(
    version, stops, locks, change, new_first
):
    """The two exclude nobody of the other, in no worker: they have two digests."""
    one, other = (version(), version(**change))[:: -1 if new_first else 1]
    first, second = one.delay("evt", "note"), other.delay("evt", "note")
    assert not second.duplicate
    assert (one.delay("evt", "note").id, other.delay("evt", "note").id) == (first.id, second.id)
    with stops.working(other.app):
        stops.entered(2)
        assert (one.lock_info("evt", "note").phase, other.lock_info("evt", "note").phase) == ("running", "running")
        stops.open_all()
        assert first.get(timeout=30) == second.get(timeout=30) == "evt"
        eventually(lambda: not held(locks), what="two locks that are free")
    assert len(stops.tokens) == 2


def test_a_new_parameter_with_a_default_is_such_a_change_where_all_arguments_count(make_app, locks):
    def old(key):
        return key

    def new(key, note=None):
        return [key, note]

    before, after, named = (
        unique(make_app(), function, name="app.rolled", lock_args=lock_args)
        for function, lock_args in ((old, None), (new, None), (new, ["key"]))
    )
    first, second = before.delay("evt"), after.delay("evt")
    assert not second.duplicate
    assert named.delay("evt").id == first.id, "with lock_args it is none"
    with working(after.app):
        assert first.get(timeout=30) == second.get(timeout=30) == ["evt", None]
    assert not held(locks)


def test_a_new_place_for_the_locks_is_a_flush_of_them_all(version, make_app, stops, locks):
    before = version(app=make_app(once_more_key_prefix="old"))
    after = version(app=make_app(once_more_key_prefix="new", once_more_lease=1))
    first, second = before.delay("evt"), after.delay("evt")
    assert not second.duplicate
    with stops.working(after.app):
        stops.entered(1)
        stops.open_all()
        assert first.get(timeout=30) == second.get(timeout=30) == "evt"
    assert stops.most["evt"] == 1, "a message takes its lock where its worker looks for it"
    assert {key.partition(":")[0] for key in locks.scan_iter() if len(key.rpartition(":")[2]) == 22} == {"old"}


LOCKS = {"until_executed": {}, "until_expired": {"lock_ttl": 600}, "while_executing": {}}
TYPES = [pytest.param(*pair, id=" to ".join(pair)) for pair in permutations(LOCKS, 2)]


@pytest.mark.parametrize("workers", ["old", "new"])
@pytest.mark.parametrize(("old", "new"), TYPES)
def test_calls_of_an_old_and_a_new_lock_exclude_each_other_each_by_its_own_rules(version, stops, locks, old, new, workers):
    """They share one digest. Whichever code the worker has, the ticket says which lock its message has."""
    before, after = (version(lock=lock, **LOCKS[lock]) for lock in (old, new))
    asked = "while_executing" not in (old, new)
    first = before.delay("evt")
    second = after.delay("evt")
    assert second.duplicate == asked, "a holder that waits is in the way of a publish that asks"
    with stops.working(before.app if workers == "old" else after.app):
        stops.entered(1)
        assert after.lock_info("evt").phase in ("running", "waiting")
        if new != "while_executing":
            assert after.delay("evt").duplicate
        stops.open_all()
        assert first.get(timeout=30) == second.get(timeout=30) == "evt"
        eventually(lambda: all(info is None or info.phase == "kept" for info in (t.lock_info("evt") for t in (before, after))))
    assert (len(stops.tokens), stops.most["evt"]) == (1 if asked else 2, 1)
    kept = old == "until_expired" or (new == "until_expired" and not asked)
    assert bool(held(locks)) == kept


@pytest.mark.parametrize("new", ["until_executed", "until_expired"])
def test_a_run_of_a_lock_that_was_taken_at_the_start_refuses_publishes_of_one_that_is_taken_before(version, stops, new):
    before, after = version(lock="while_executing"), version(lock=new, **LOCKS[new])
    first = before.delay("evt")
    with stops.working(before.app):
        stops.entered(1)
        again = after.delay("evt")
        assert (again.duplicate, again.id) == (True, first.id)


@pytest.mark.parametrize("new", ["until_executed", "while_executing"])
def test_a_period_of_the_old_lock_hinders_only_those_who_ask_for_periods(version, stops, new):
    before, after = version(lock="until_expired", lock_ttl=600), version(lock=new)
    first = before.delay("evt")
    with stops.working(after.app):
        stops.open_all()
        first.get(timeout=30)
        eventually(lambda: before.lock_info("evt").phase == "kept")
        second = after.delay("evt")
        assert not second.duplicate
        assert second.get(timeout=30) == "evt"
        assert before.delay("evt").id == first.id


def test_a_call_keeps_the_period_that_it_was_published_with(version, stops):
    before, after = version(lock="until_expired", lock_ttl=600), version(lock="until_expired", lock_ttl=60)
    first = before.delay("evt")
    with stops.working(after.app):
        stops.open_all()
        first.get(timeout=30)
        kept = eventually(lambda: (info := after.lock_info("evt")).phase == "kept" and info)
    assert 60 < kept.remaining <= 600


def test_a_call_from_before_a_period_has_none(version, stops, locks):
    before, after = version(lock="until_executed"), version(lock="until_expired", lock_ttl=600)
    first = before.delay("evt")
    with stops.working(after.app):
        stops.open_all()
        first.get(timeout=30)
        eventually(lambda: not held(locks))
        second = after.delay("evt")
        second.get(timeout=30)
        assert after.delay("evt").id == second.id


# A ticket of a version to come


@pytest.fixture
def from_the_future():
    """From now on every ticket leaves as a version to come would write it, for a digest of its own."""

    def receive(headers, **_):
        headers["once_more"] = {"v": 2, "lock": {"kind": "until_executed"}, "of": "x" * 30}

    before_task_publish.connect(receive, weak=False)
    yield
    before_task_publish.disconnect(receive)


def test_a_ticket_of_a_newer_version_counts_as_none_and_its_message_runs_once(
    version, stops, broker, locks, from_the_future, caplog
):
    task = version()
    with stops.working(task.app):
        first = task.delay("evt")
        stops.entered(1)
        assert stops.tokens[0], "it has asked for its lock at its start"
        stops.open_all()
        assert first.get(timeout=30) == "evt"
        eventually(broker.quiet, what="a message that does not come again")
        eventually(lambda: not held(locks))
    assert len(stops.tokens) == 1
    warnings = [r.getMessage() for r in caplog.records if f"[{first.id}]: its ticket is not used" in r.getMessage()]
    assert warnings
    assert all(line.endswith("version 2, known is 1") for line in warnings)


def test_a_message_with_a_ticket_of_a_newer_version_meets_the_strategy_of_its_task(version, stops, broker, from_the_future):
    """As any message without a ticket: dropped as a duplicate where the task says ``log``, kept where it says ``reschedule``."""
    drops, waits = version(), version(name="app.waits", on_conflict={"server": "reschedule"})
    unique(drops.app, stops.body, name="app.waits", bind=True, on_conflict={"server": "reschedule"}, reschedule_countdown=0.1)
    rescheduled = []
    signals.task_rescheduled.connect(lambda task_id, **_: rescheduled.append(task_id), weak=False, dispatch_uid="rescheduled")
    try:
        with stops.working(drops.app):
            firsts = [drops.delay("evt"), waits.delay("evt")]
            stops.entered(2)
            dropped, kept = (task.apply_async(("evt",), lock=None) for task in (drops, waits))
            with pytest.raises(DuplicateDropped):
                dropped.get(timeout=30)
            eventually(lambda: kept.id in rescheduled)
            stops.open_all()
            assert [result.get(timeout=30) for result in (*firsts, kept)] == ["evt"] * 3
            eventually(broker.quiet)
    finally:
        signals.task_rescheduled.disconnect(dispatch_uid="rescheduled")
    assert len(stops.tokens) == 3


# A task with a new name


def test_a_message_whose_task_has_gone_is_celerys_to_throw_away_and_its_lock_is_freed_with_it(version, make_app, broker, caplog):
    before = version()
    assert before.delay("evt")
    after = version(name="app.renamed", lock_scope="app.rolled")
    with working(after.app):
        eventually(lambda: "Received unregistered task of type 'app.rolled'" in caplog.text)
        eventually(broker.quiet)
    assert not after.delay("evt").duplicate


def test_with_its_old_name_as_scope_and_an_alias_a_renamed_task_loses_no_message_and_no_lock(version, stops, locks):
    before = version()
    first = before.delay("evt")
    after = version(name="app.renamed", lock_scope="app.rolled")
    version(app=after.app, lock_scope="app.rolled")  # the alias, until its last message has run
    assert after.delay("evt").id == first.id
    with stops.working(after.app):
        stops.entered(1)
        assert after.delay("evt").id == first.id
        stops.open(1)
        assert first.get(timeout=30) == "evt"
        eventually(lambda: not held(locks))
        second = after.delay("evt")
        assert before.delay("evt").id == second.id
        stops.open_all()
        assert second.get(timeout=30) == "evt"


# A lock store that goes away together with the lock


@pytest.fixture
def only_own_tasks(monkeypatch):
    """Celery gives every app the tasks of ``shop``, which have locks: without a store a worker that knows them does not start."""
    monkeypatch.setattr(_state, "_on_app_finalizers", set())


@pytest.mark.usefixtures("only_own_tasks")
def test_without_a_lock_and_without_a_store_a_ticket_in_flight_is_no_obstacle(version, make_app, stops, broker, caplog):
    """Nobody can say where its lock was: its message runs, and is not put off for ever. A retry of it, too."""
    stops.ends[1] = lambda task: task.retry(countdown=0)
    first = version().delay("evt")
    nowhere = make_app(once_more_lease=1, once_more_redis_url="sentinel://127.0.0.1:1")  # says no master_name
    after = version(app=nowhere, lock=None)
    stops.open_all()
    with stops.working(after.app):
        assert first.get(timeout=20) == "evt"
        eventually(broker.quiet)
    assert stops.tokens == [None, None]
    (warning,) = (r.getMessage() for r in caplog.records if f"[{first.id}] runs without a lock: " in r.getMessage())
    assert "master_name" in warning


def test_without_a_lock_and_with_a_store_that_is_down_a_ticket_in_flight_waits_unless_its_task_proceeds(
    version, make_app, stops, broker, lock_server
):
    before = [version(app=make_app(once_more_redis_url=lock_server.url(0)), name=f"app.{name}") for name in ("waits", "proceeds")]
    waits, proceeds = (task.delay(task.name) for task in before)
    lock_server.kill()
    app = make_app(once_more_lease=1, once_more_redis_url=lock_server.url(0))
    version(app=app, lock=None, name="app.waits")
    version(app=app, lock=None, name="app.proceeds", on_outage="proceed")
    stops.open_all()
    with stops.working(app):
        assert proceeds.get(timeout=30) == "app.proceeds"
        eventually(lambda: (m := broker.find(waits.id)) and m["headers"]["eta"], what="a message that was put off")
        lock_server.start()
        assert waits.get(timeout=30) == "app.waits"
