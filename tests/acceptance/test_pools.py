"""Pools without child processes: a run that is cut short in a thread or greenlet has no main process to outlive it."""

import json

import pytest
from support import held
from support.broker import Broker
from support.shop_life import shop_for_a_module
from support.waiting import eventually
from support.worker_process import WorkerNode, WorkerProcess

from celery_once_more.reaper import reap

#: the keeper beats three times a second
LEASE_S = 1


@pytest.fixture(scope="module")
def shop(shop_env, redis_server):
    import shop

    yield from shop_for_a_module(shop, redis_server)


@pytest.fixture(scope="module", params=["threads", "gevent", "solo"])
def pool(request):
    return request.param


@pytest.fixture(scope="module")
def worker(shop, pool):
    slots = () if pool == "solo" else ("-c", "8")
    process = WorkerProcess("-P", pool, *slots, name=pool, env={"SHOP_CONF": json.dumps({"once_more_lease": LEASE_S})})
    process.ready()
    yield WorkerNode(process, shop.app)
    process.teardown()


@pytest.fixture
def key(request):
    return request.node.name


EARLY_AND_LATE = pytest.mark.parametrize("name", ["ends_by", "ends_late_by"])


def runs_again(shop, task, key):
    """The next publish is admitted, and runs, beside nobody."""
    again = task.delay(key)
    assert not again.duplicate
    assert again.get(timeout=30) == key
    assert not [start for start in shop.witness.overlaps() if start["key"] == key]


@EARLY_AND_LATE
@pytest.mark.parametrize(("how", "runs"), [("success", 1), ("exception", 1), ("ignore", 1), ("reject", 1), ("retry", 2)])
def test_an_ordinary_end_frees_the_lock(shop, worker, key, name, how, runs):
    task = getattr(shop, name)
    task.delay(key, how)
    eventually(lambda: shop.witness.count("end", key) >= runs and held.free(task, key), what="a free lock")
    assert shop.witness.count("start", key) == runs
    runs_again(shop, task, key)


def test_a_run_keeps_its_lock_for_longer_than_three_leases(shop, worker, key):
    task = shop.gated
    first = task.delay(key)
    began = eventually(lambda: (now := held.holder(task, key)) and now.phase == "R" and now)
    eventually(lambda: held.holder(task, key).until > began.until + 3000 * LEASE_S, what="three leases more")
    assert held.holder(task, key).run == began.run
    shop.open_gate(key, 1)
    assert first.get(timeout=30) == 1  # it asked current_lock.check()
    eventually(lambda: held.free(task, key))


#: a worker of one slot ends with its task, and hears of nothing before
SEVERAL_SLOTS = pytest.mark.parametrize("pool", ["threads", "gevent"], indirect=True, scope="module")


@SEVERAL_SLOTS
def test_sys_exit_frees_the_lock_where_celery_does_not_redeliver(shop, worker, key):
    shop.ends_by.delay(key, "exit")
    eventually(lambda: shop.witness.count("start", key) and held.free(shop.ends_by, key), what="a free lock")
    runs_again(shop, shop.ends_by, key)


@SEVERAL_SLOTS
def test_sys_exit_leaves_the_lock_to_the_next_delivery_where_the_broker_keeps_the_message(shop, worker, key):
    first = shop.ends_late_acked_by.delay(key, "exit")
    waits = eventually(lambda: (now := held.holder(shop.ends_late_acked_by, key)) and now.phase == "W" and now.run and now)
    assert (waits.task_id, waits.hops) == (first.id, [0])
    assert shop.ends_late_acked_by.delay(key).id == first.id


@SEVERAL_SLOTS
@EARLY_AND_LATE
def test_a_run_that_is_terminated_frees_its_lock_when_it_has_ended(shop, worker, pool, key, name):
    """Only greenlets can be ended; in a thread the body goes on, and has its lock until it ends."""
    task = getattr(shop, name)
    first = task.delay(key, "success when told")
    running = eventually(lambda: (now := held.holder(task, key)) and now.phase == "R" and now)
    shop.app.control.revoke(first.id, terminate=True, reply=True, timeout=30, destination=[worker.hostname()])
    if pool == "threads":
        eventually(lambda: held.holder(task, key).until > running.until, what="one more beat")
        assert held.holder(task, key).run == running.run
        shop.open_gate(key, 1)
    eventually(lambda: held.free(task, key), what="a free lock")
    runs_again(shop, task, key)


@pytest.mark.parametrize("name", ["ends_by", "ends_late_by"])
@pytest.mark.parametrize("pool", ["gevent"], indirect=True, scope="module")
def test_a_lock_that_a_cold_shutdown_of_greenlets_left_waits_only_if_its_message_is_still_there(
    shop, redis_server, worker, key, name
):
    """Celery breaks off in the middle: it may acknowledge, and so lose, also what is acknowledged late, or not even that.

    On a worker of its own: one in which a greenlet ended by `sys.exit` may not end at all (seen with plain tasks as well).
    """
    worker.container.restart()
    task = getattr(shop, name)
    task.delay(key, "success when told")
    eventually(lambda: shop.witness.count("start", key))
    worker.container.kill("SIGQUIT")
    eventually(lambda: worker.container.status == "exited", what="the end of the worker")
    broker = Broker(redis_server.client(0))
    try:
        eventually(lambda: reap(shop.app) and (held.free(task, key) or not broker.empty()),
                   what="a free lock, or a message for which it waits")  # fmt: skip
    finally:
        worker.container.restart()
