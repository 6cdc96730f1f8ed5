"""Every way in which Celery publishes a call, with two locks, in the life of one worker: none of them goes past the lock."""

import json
import os
import subprocess
import sys

import pytest
from celery import Celery, Signature, chain, chord, group
from celery.beat import Scheduler
from celery.schedules import schedule
from support import results
from support.broker import Broker
from support.lock_db import held
from support.waiting import eventually
from support.worker_process import WorkerProcess


def published(paths, task, key):
    """Celery's ``celery call``."""
    return paths.call_by_command(["-A", "shop_paths"], task, key)


def chained(paths, task, key):
    result = chain(paths.step.si("before"), task.si(key), paths.step.si("after")).delay()
    return [result, result.parent, result.parent.parent]


def chord_header(paths, task, key):
    result = chord([paths.step.si("beside"), task.si(key)])(paths.step.si("body"))
    return [result, *result.parent.results]


def chord_body(paths, task, key):
    result = chord([paths.step.si("one"), paths.step.si("other")])(task.si(key))
    return [result, *result.parent.results]


def linked(paths, task, key):
    parent = paths.step.apply_async(("parent",), link=task.si(key).set(task_id=f"{key} linked"))
    return [parent, task.AsyncResult(f"{key} linked")]


def linked_error(paths, task, key):
    parent = paths.fails.apply_async(("parent",), link_error=task.si(key).set(task_id=f"{key} linked"))
    return [parent, task.AsyncResult(f"{key} linked")]


def beat(app, task, key):
    entry = Scheduler.Entry(name=key, task=task.name, args=(key,), schedule=schedule(3600, app=app), app=app)
    return [Scheduler(app, lazy=True).apply_async(entry, advance=False)]


def dict_form(paths, task, key):
    sent = json.loads(json.dumps(task.s(key)))
    return [Signature.from_dict(sent, app=paths.app).apply_async()]


#: path -> how it is published; each returns the results that must end
PATHS = {
    "delay": lambda paths, task, key: [task.delay(key)],
    "delay by keyword": lambda paths, task, key: [task.delay(key=key)],
    "apply_async": lambda paths, task, key: [task.apply_async((key,))],
    "apply_async with a list": lambda paths, task, key: [task.apply_async([key])],
    "apply_async with a countdown": lambda paths, task, key: [task.apply_async((key,), countdown=0.1)],
    "Signature.delay": lambda paths, task, key: [task.s(key).delay()],
    "Signature.apply_async": lambda paths, task, key: [task.s().apply_async((key,))],
    "a signature of a generator": lambda paths, task, key: [task.signature(each for each in [key]).apply_async()],
    "a signature by name": lambda paths, task, key: [paths.app.signature(task.name, (key,)).apply_async()],
    "a signature as a dict": dict_form,
    "a group": lambda paths, task, key: group(task.s(key), paths.step.s("beside")).delay().results,
    "the first step of a chain": lambda paths, task, key: [chain(task.si(key), paths.step.si("after")).delay()],
    "a later step of a chain": chained,
    "a chord's header": chord_header,
    "a chord's body": chord_body,
    "a link": linked,
    "an old-style link_error": linked_error,
    "beat that knows the task": lambda paths, task, key: beat(paths.app, task, key),
    "celery call": published,
    "send_task that knows the task": lambda paths, task, key: [paths.app.send_task(task.name, (key,))],
}
#: published where nobody knows the task: without a ticket, and settled at the start
STRANGERS = {
    "send_task that does not know the task": lambda paths, task, key: [paths.stranger.send_task(task.name, (key,))],
    "a signature of an unknown name": lambda paths, task, key: [paths.stranger.signature(task.name, (key,)).apply_async()],
    "beat that does not know the task": lambda paths, task, key: beat(paths.stranger, task, key),
    "celery call without an app": lambda paths, task, key: paths.call_by_command(["-b", paths.app.conf.broker_url], task, key),
}
#: by ``delay``: in the second run its own publish has made
OWN = ["retried", "autoretried", "replaced"]
#: by ``delay``: the lock comes to the task in another way
DECLARED = ["shared", "annotated"]


class Paths:
    def __init__(self, module, broker):
        self.app, self.step, self.fails = module.app, module.step, module.fails
        self.witness, self.gates, self.broker = module.witness, module.gates, broker
        conf = self.app.conf
        self.stranger = Celery("stranger", broker=conf.broker_url, backend=conf.result_backend, set_as_current=False)

    def task(self, name, lock):
        return self.app.tasks[f"paths.{name}.{lock}"]

    def call_by_command(self, options, task, key):
        command = [sys.executable, "-m", "celery", *options, "call", task.name, "--args", json.dumps([key])]
        told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, env=os.environ)
        return [task.AsyncResult(told.stdout.split()[-1])]

    def running(self, key, n):
        return eventually(lambda: (runs := self.runs(key)) and len(runs) >= n and runs[n - 1], what=f"run {n} of {key}")

    def runs(self, key):
        return self.witness.events("start", key)

    def check(self, key, task, results_, *, ticket, run=1):
        """While this run stands at its gate, a plain second call does not run beside it; and every result ends."""
        start = self.running(key, run)
        assert start["ticket"] is ticket
        assert start["token"]
        again = task.delay(key)
        if task.lock == "until_executed":
            assert (again.duplicate, again.id) == (True, start["task_id"])
            runs = run
        else:
            assert not again.duplicate
            eventually(lambda: self.broker.find(again.id, once_more_tries=1), what="the second call, rescheduled")
            runs = run + 1
        assert len(self.runs(key)) == run
        self.gates.open(*(f"{key}:{n}" for n in range(run, runs + 1)))
        for result in [*results_, again]:
            eventually(result.ready, what=f"an end of {result!r}")
        assert again.get(timeout=30) == key
        assert len(self.runs(key)) == runs
        assert not [started for started in self.witness.overlaps() if started["key"] == key]


@pytest.fixture(scope="module")
def paths(shop_env, redis_server):
    redis_server.client(0).flushall()
    import shop_paths

    vars(shop_paths.app).pop("_once_more_runtime", None)
    worker = WorkerProcess("-c", "4", app="shop_paths", name="paths")
    worker.ready()
    paths = Paths(shop_paths, Broker(redis_server.client(0)))
    paths.locks = redis_server.client(2)
    yield paths
    paths.gates.open_all()
    worker.teardown()
    paths.stranger.close()
    vars(shop_paths.app).pop("_once_more_runtime", None)
    results.forget()
    redis_server.client(0).flushall()


@pytest.fixture(autouse=True)
def nothing_is_left(paths):
    yield
    eventually(paths.broker.quiet, what="a quiet broker")
    assert not held(paths.locks)


@pytest.fixture
def key(request):
    return request.node.name


each_lock = pytest.mark.parametrize("lock", ["until", "while"])


@each_lock
@pytest.mark.parametrize("path", PATHS)
def test_a_call_has_its_ticket_and_excludes_the_next_one_by_whichever_path_it_is_published(paths, key, lock, path):
    task = paths.task("called", lock)
    paths.check(key, task, PATHS[path](paths, task, key), ticket=True)


@each_lock
@pytest.mark.parametrize("path", STRANGERS)
def test_a_call_from_a_program_that_does_not_know_the_task_is_settled_at_its_start(paths, key, lock, path):
    task = paths.task("called", lock)
    paths.check(key, task, STRANGERS[path](paths, task, key), ticket=False)


@each_lock
@pytest.mark.parametrize("name", OWN)
def test_what_a_run_publishes_of_itself_has_its_ticket_and_excludes_the_next_call(paths, key, lock, name):
    task = paths.task(name, lock)
    result = task.delay(key)
    paths.running(key, 1)
    paths.gates.open(f"{key}:1")
    paths.check(key, task, [result], ticket=True, run=2)


@each_lock
@pytest.mark.parametrize("name", DECLARED)
def test_a_task_that_gets_its_lock_in_another_way_has_its_ticket(paths, key, lock, name):
    task = paths.task(name, lock)
    paths.check(key, task, [task.delay(key)], ticket=True)


@each_lock
@pytest.mark.parametrize("path", ["map", "starmap", "chunks"])
def test_items_of_map_and_chunks_are_direct_calls_which_take_no_lock(paths, key, lock, path):
    task = paths.task("called", lock)
    items = {
        "map": lambda: task.map([key]),
        "starmap": lambda: task.starmap([(key,)]),
        "chunks": lambda: task.chunks([(key,)], 1),
    }
    result = items[path]().apply_async()
    assert paths.running(key, 1)["token"] is None
    beside = task.delay(key)
    assert not getattr(beside, "duplicate", False)
    paths.running(key, 2)
    paths.gates.open(f"{key}:1", f"{key}:2")
    assert beside.get(timeout=30) == key
    eventually(result.ready, what=f"an end of {result!r}")


@each_lock
def test_arguments_that_are_a_generator_are_celerys_error_and_leave_no_lock(paths, key, lock):
    task = paths.task("called", lock)
    with pytest.raises(TypeError):
        task.apply_async(each for each in [key])
    assert paths.broker.empty()
    assert not held(paths.locks)
