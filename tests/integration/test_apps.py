"""Tasks that ask for no lock, calls that never leave the process, and apps that share one."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from celery import exceptions
from support.apps import unique, working
from support.commands import commands_of
from support.lock_db import held
from support.waiting import eventually

from celery_once_more import LockConflict, UniqueTask, current_lock, signals

pytest_plugins = ["support.app_fixtures"]


def look(key):
    """What a body sees of its lock."""
    return [key, bool(current_lock), current_lock.digest, current_lock.fencing_token, current_lock.remaining]


NULL = ["evt", False, None, None, 0.0]


# lock=None


def test_without_a_lock_no_publish_and_no_run_asks_the_store(make_app, lock_server):
    """A worker's beat is far off: its lease is ten minutes."""
    app = make_app(once_more_redis_url=lock_server.url(0), once_more_lease=600)
    task = unique(app, look, lock=None)
    with commands_of(lock_server) as sent:
        results = [task.delay("evt"), task.apply_async(("evt",)), task.s("evt").delay(), app.send_task(task.name, ("evt",))]
        with working(app):
            assert [result.get(timeout=30) for result in results] == [NULL] * 4
    assert sent == []
    assert not any(result.duplicate for result in results[:3])


def test_without_a_lock_a_store_that_is_away_is_not_missed(make_app, nowhere):
    app = make_app(once_more_redis_url=nowhere)
    task = unique(app, look, lock=None)
    result = task.delay("evt")
    with working(app):
        assert result.get(timeout=30) == NULL


def test_a_call_with_lock_none_of_a_task_with_a_lock_asks_nothing_where_it_runs_either(make_app, nowhere):
    app = make_app(once_more_redis_url=nowhere)
    task = unique(app, look)
    results = [task.apply_async(("evt",), lock=None) for _ in range(2)]
    with working(app):
        assert [result.get(timeout=30) for result in results] == [NULL] * 2


RECEIVERS = """
import sys
from celery import Celery, signals
from celery_once_more import UniqueTask

app = Celery("app", broker="memory://", set_as_current=False)
app.conf.once_more_redis_url = sys.argv[1]
app.send_task("somebody.elses")
for _ in range(2):

    def comes_and_goes(**_):
        pass

    signals.before_task_publish.connect(comes_and_goes)
    signals.before_task_publish.disconnect(comes_and_goes)
    del comes_and_goes

@app.task(base=UniqueTask, lock="until_executed", name="unique")
def unique():
    pass

unique.delay()
channel = app.connection_for_write().channel()
channel._get("celery")
assert "once_more" in channel._get("celery")["headers"], "a message without a ticket"
"""


def test_receivers_that_came_and_went_before_the_first_unique_task_do_not_keep_tickets_from_messages(clean_redis):
    """Celery 5.6 would go on to believe that nobody listens to the signal of a publish."""
    subprocess.run([sys.executable, "-c", RECEIVERS, clean_redis.url(0)], check=True, timeout=60)


IMPORTS = """
from celery import Celery, signals
before = {name: len(getattr(signals, name).receivers) for name in signals.__all__}
import celery_once_more
from celery_once_more import reaper
app = Celery("plain", broker="memory://")
app.finalize()
assert {name: len(getattr(signals, name).receivers) for name in signals.__all__} == before
assert not app.steps["worker"], app.steps
assert not [name for name in app.tasks if not name.startswith("celery.")], app.tasks
"""


def test_importing_the_package_changes_nothing_in_a_program_without_a_unique_task():
    """No receiver, no step of the worker, no task; in a process of its own, because Celery shares tasks between apps."""
    subprocess.run([sys.executable, "-c", IMPORTS], check=True, timeout=60)


# Eager mode, direct calls


def test_a_direct_call_asks_nothing_and_has_a_null_lock(make_app, nowhere):
    task = unique(make_app(once_more_redis_url=nowhere), look)
    assert task("evt") == NULL
    assert task.run("evt") == NULL


def test_apply_asks_nothing_and_has_a_null_lock(make_app, nowhere):
    task = unique(make_app(once_more_redis_url=nowhere), look)
    assert task.apply(("evt",)).get() == NULL
    assert task.s("evt").apply().get() == NULL


def test_eager_mode_asks_nothing_and_never_conflicts(make_app, nowhere):
    """Not even where the second call comes from inside the first."""
    app = make_app(once_more_redis_url=nowhere, task_always_eager=True, task_eager_propagates=True)
    task = unique(app, look, on_conflict="raise")

    def outer(key):
        return [look(key), outer_task.delay("again").get(disable_sync_subtasks=False)] if key == "evt" else look(key)

    outer_task = unique(app, outer, on_conflict="raise", lock_args=[])
    assert [task.delay("evt").get(), task.apply_async(("evt",)).get()] == [NULL] * 2
    assert outer_task.delay("evt").get()[0] == NULL


def test_eager_mode_in_a_retry_asks_nothing(make_app, nowhere):
    app = make_app(once_more_redis_url=nowhere, task_always_eager=True)

    def twice(self, key):
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        return look(key)

    assert unique(app, twice, bind=True).delay("evt").get() == NULL


# More than one app in a process


def test_two_apps_with_two_stores_in_one_process_do_not_meet(make_app, clean_redis, lock_server):
    one = make_app("shop", once_more_lease=600, task_default_queue="one")
    two = make_app("shop", once_more_lease=600, task_default_queue="two", once_more_redis_url=lock_server.url(0))
    first, second = unique(one, look), unique(two, look)
    assert first.name == second.name
    results = [first.delay("evt"), second.delay("evt")]
    assert [result.duplicate for result in results] == [False, False]
    assert first.delay("evt").id == results[0].id
    assert second.delay("evt").id == results[1].id
    assert len(held(clean_redis.client(2))) == len(held(lock_server.client(0))) == 1

    with commands_of(lock_server) as to_two, working(one):
        assert results[0].get(timeout=30)[1]
        eventually(lambda: not held(clean_redis.client(2)))
    assert to_two == []
    assert held(lock_server.client(0))
    with commands_of(clean_redis, db=2) as to_one, working(two):
        assert results[1].get(timeout=30)[1]
        eventually(lambda: not held(lock_server.client(0)))
    assert to_one == []


def test_a_name_that_one_app_publishes_takes_no_lock_of_the_current_app(make_app, clean_redis):
    """Both know the task, and each has its own broker and its own store; Celery's signal does not say whose publish it is."""
    current = make_app("shop")
    other = make_app("shop", broker_url=clean_redis.url(4), once_more_redis_url=clean_redis.url(5))
    for app in (current, other):
        unique(app, look)
        app.finalize()
    current.set_current()
    other.send_task("shop.look", ("evt",))
    assert not held(clean_redis.client(2))
    assert not current.tasks["shop.look"].delay("evt").duplicate
    current.send_task("shop.look", ("another",))
    assert len(held(clean_redis.client(2))) == 2


def test_two_apps_with_two_prefixes_in_one_store_do_not_meet(make_app, locks):
    tasks = [unique(make_app("shop", once_more_key_prefix=prefix), look) for prefix in ("staging", "production")]
    assert [task.delay("evt").duplicate for task in tasks] == [False, False]
    assert [task.delay("evt").duplicate for task in tasks] == [True, True]
    assert {key.partition(":")[0] for key in locks.scan_iter()} == {"staging", "production"}


def test_two_apps_with_one_store_exclude_each_other(make_app):
    one, two = (unique(make_app("shop"), look) for _ in range(2))
    first = one.delay("evt")
    assert two.delay("evt").id == first.id


EMBEDDED = """
import os
import sys
from celery import Celery
from support.apps import unique, working

def settle(key):
    return key

for name in ("one", "two"):
    app = Celery(name, broker=sys.argv[1], backend=sys.argv[1])
    task = unique(app, settle)
    with working(app):
        assert task.delay("evt").get(timeout=30) == "evt"
child = os.fork()
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_process_that_had_two_embedded_workers_can_still_fork(clean_redis):
    """As a test suite has them. A fork waits for the beat of a keeper that is under way, and for nothing else."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", EMBEDDED, clean_redis.url(0)], check=True, timeout=60, env=env)


def test_a_callers_wait_is_not_disturbed_by_another_who_drops_the_result_of_a_duplicate(make_app):
    """Both results stand for one task id. Celery 5.6 ends the process's subscription to an id with any of its results."""
    app, go, waiting = make_app(), threading.Event(), threading.Event()

    def waits(key):
        assert go.wait(60)
        return key

    task = unique(app, waits)
    first = task.delay("evt")
    with working(app), ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(first.get, timeout=20, on_interval=waiting.set)
        assert waiting.wait(60)
        assert task.delay("evt").duplicate  # its result is gone with this line
        go.set()
        assert waiter.result(timeout=60) == "evt"


def test_the_callers_of_a_call_and_of_its_duplicate_wait_at_once_and_are_both_answered(make_app):
    """Celery 5.6 tells one waiter per task id."""
    app, go, waiting = make_app(), threading.Event(), threading.Barrier(4)

    def waits(key):
        assert go.wait(60)
        return key

    def once(barrier):
        told = []
        return lambda *_: told or (told.append(1), barrier.wait(60))

    task = unique(app, waits)
    results = [task.delay("evt") for _ in range(3)]
    assert [result.duplicate for result in results] == [False, True, True]
    with working(app), ThreadPoolExecutor(3) as pool:
        waiters = [pool.submit(result.get, timeout=20, on_interval=once(waiting)) for result in results]
        waiting.wait(60)
        go.set()
        assert [waiter.result(timeout=60) for waiter in waiters] == ["evt"] * 3


def test_a_wait_for_a_duplicate_ends_with_its_timeout(make_app):
    task = unique(make_app(), look)
    task.delay("evt")
    with pytest.raises(exceptions.TimeoutError):
        task.delay("evt").get(timeout=0.1)


def test_a_worker_in_this_process_takes_its_keeper_along(make_app):
    def keepers():
        return [thread for thread in threading.enumerate() if "keeper" in thread.name]

    app = make_app()
    task = unique(app, look)
    with working(app):
        task.delay("evt").get(timeout=30)
        assert len(keepers()) == 1
    eventually(lambda: not keepers(), what="no keeper")


# What a run tells, and what it does not let through


def test_a_run_tells_that_it_took_and_freed_its_lock_and_receivers_that_raise_break_nothing(make_app):
    heard = []

    def hear(signal, sender, **what):
        heard.append((signal.name, sender, what))
        raise RuntimeError("a receiver that raises")

    ours = [getattr(signals, name) for name in signals.__all__]
    for signal in ours:
        signal.connect(hear)
    try:
        app = make_app()
        task = unique(app, look)
        result = task.delay("evt")
        with working(app):
            _, _, digest, token, _ = result.get(timeout=30)
            eventually(lambda: len(heard) == 3)
    finally:
        for signal in ours:
            signal.disconnect(hear)
    whose = {"task_id": result.id, "digest": digest}
    assert heard == [
        ("lock_acquired", task.name, {"phase": "waiting", "token": None, **whose}),
        ("lock_acquired", task.name, {"phase": "running", "token": token, **whose}),
        ("lock_released", task.name, {"reason": "ended as SUCCESS", **whose}),
    ]


@pytest.mark.parametrize("own_hook", [False, True], ids=["without", "with"])
def test_a_start_that_meets_a_lock_fails_with_lock_conflict_instead_of_its_body(make_app, own_hook):
    """A message by name from a process that does not know the task; ``with`` a ``before_start`` of the user's own."""
    app, ran = make_app(), []

    class Hooked(UniqueTask):
        def before_start(self, task_id, args, kwargs):
            ran.append("before_start")

    def body(key):
        ran.append("body")

    task = unique(app, body, on_conflict="raise", base=Hooked if own_hook else UniqueTask)
    holder = task.apply_async(("evt",), countdown=600)
    result = make_app("stranger").send_task(task.name, ("evt",))
    with working(app), pytest.raises(LockConflict) as caught:
        result.get(timeout=30)
    assert caught.value.holder == holder.id
    assert "body" not in ran
