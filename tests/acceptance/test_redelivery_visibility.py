"""A Redis broker hands a message to a second worker when the first one has kept it for longer than the visibility timeout."""

import json

import pytest
from support.floor import Floor
from support.shop_life import shop_for_a_module
from support.waiting import eventually
from support.worker_process import WorkerProcess

VISIBLE_S = 2
#: kombu 5.7 and later have the other two: an unacknowledged message comes again as soon as the timeout says so
COMES_AGAIN = {"visibility_timeout": VISIBLE_S, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
CONF = {"broker_transport_options": COMES_AGAIN, "worker_prefetch_multiplier": 4}
#: seconds; by then a message was delivered several times
FAR = 3.5 * VISIBLE_S


@pytest.fixture(scope="module", autouse=True)
def shop(shop_env, redis_server):
    import shop_gated

    yield from shop_for_a_module(shop_gated, redis_server, **CONF)


@pytest.fixture(scope="module", params=["prefork", "threads"])
def pool(request):
    return request.param


@pytest.fixture(scope="module")
def start(shop, pool):
    workers = []

    def start(name, slots):
        env = {"SHOP_CONF": json.dumps(CONF), "SHOP_SIGNALS": "tell"}
        workers.append(WorkerProcess("-P", pool, "-c", str(slots), app="shop_gated", name=name, env=env))
        return workers[-1]

    yield start
    for worker in workers:
        worker.teardown()


@pytest.fixture(scope="module")
def narrow(start):
    """A worker with one slot."""
    worker = start("narrow", 1)
    worker.ready()
    return worker


@pytest.fixture(scope="module")
def wide(start, narrow):
    worker = start("wide", 6)
    worker.ready()
    return worker


@pytest.fixture
def floor(shop, redis_server):
    floor = Floor(shop, redis_server)
    yield floor
    floor.stored.close()


@pytest.fixture
def key(request):
    return request.node.name


def deliveries(call, *workers):
    return sum(call.id in line and "received" in line for worker in workers for line in worker.logs().splitlines())


def received(worker, call):
    return deliveries(call, worker) > 0


def ran_once(floor, call, key):
    """Its result is there, nothing is left of its copies, its lock is free, and it ran once."""
    assert call.get(timeout=60) == key
    floor.settled()
    assert len(floor.runs(key)) == 1
    assert floor.free()


def test_what_was_fetched_and_waits_behind_a_long_task_for_too_long_runs_once(floor, narrow, request, key):
    """The copies run on a second worker when the long task ends, and the first worker comes to the messages themselves.

    This test is the first one: the second worker must not be there when the first one fetches the messages.
    """
    long = floor.shop.gated.delay(f"long, {key}")
    floor.running(f"long, {key}")
    tasks = {f"{name}, {key}": getattr(floor.shop, name) for name in ("gated", "gated_early")}
    calls = {name: task.delay(name) for name, task in tasks.items()}
    for call in calls.values():
        eventually(lambda call=call: received(narrow, call), what="the message fetched")
    wide = request.getfixturevalue("wide")
    for name, call in calls.items():
        floor.running(name)
        assert received(wide, call)
    floor.gates.open(f"long, {key}:1")
    for name, call in calls.items():
        eventually(lambda call=call: floor.told("task_redelivered", task_id=call.id), what="the message itself put off")
        assert tasks[name].delay(name).duplicate
        floor.gates.open(f"{name}:1", f"{name}:2")
    assert long.get(timeout=60) == f"long, {key}"
    for name, call in calls.items():
        ran_once(floor, call, name)
    assert len(floor.runs(f"long, {key}")) == 1


def test_an_eta_beyond_the_timeout_gives_many_copies_and_one_run(floor, narrow, wide, key):
    """Plain Celery beside it, in the same workers, runs more than once."""
    plain = floor.shop.plain_late.apply_async((f"plain, {key}", 1), countdown=FAR)
    tasks = {f"{name}, {key}": getattr(floor.shop, name) for name in ("gated", "gated_early")}
    calls = {name: task.apply_async((name,), countdown=FAR) for name, task in tasks.items()}
    for name, call in calls.items():
        assert tasks[name].delay(name).duplicate
        eventually(lambda call=call: deliveries(call, narrow, wide) > 1, what="copies")
    for name, call in calls.items():
        floor.running(name)
        if name.startswith("gated, "):  # an early one's copies come no more, and may wait for the slot in which it runs
            eventually(lambda call=call: floor.told("task_redelivered", task_id=call.id), what="a copy put off")
        floor.gates.open(f"{name}:1", f"{name}:2")
    for name, call in calls.items():
        ran_once(floor, call, name)
    assert plain.get(timeout=60) == f"plain, {key}"
    assert len(floor.runs(f"plain, {key}")) > 1
