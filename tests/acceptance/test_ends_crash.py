"""The rows L6, L13 and L19 of the design: a process dies, or stands still, in the middle of a run or of a retry.

The lease is two seconds here, and the broker hands an unacknowledged message out again after three.
"""

# ruff: noqa: N802  (a test bears the number of its row)

import json

import pytest
from celery.exceptions import WorkerLostError
from support import held
from support.broker import Broker
from support.shop_life import shop_for_a_module
from support.waiting import eventually
from support.worker_process import WorkerNode, WorkerProcess

from celery_once_more.reaper import reap

CONF = {
    "once_more_lease": 2,
    "broker_transport_options": {"visibility_timeout": 3, "unacked_restore_interval": 1, "unacked_restore_throttle": 1},
}
#: seconds that a retry has between its requeue and its confirmation
HANDOVER = 30


@pytest.fixture(scope="module")
def shop(shop_env, redis_server):
    import shop

    yield from shop_for_a_module(shop, redis_server, **CONF)


@pytest.fixture(scope="module")
def start_worker(shop):
    nodes = []

    def start(*options):
        env = {"SHOP_CONF": json.dumps(CONF), "SHOP_CRASH_POINTS": "1"}
        nodes.append(WorkerNode(WorkerProcess(*options, name=f"crash{len(nodes)}", env=env), shop.app))
        nodes[-1].container.ready()
        return nodes[-1]

    yield start
    for node in nodes:
        node.teardown()


@pytest.fixture(scope="module")
def worker(start_worker):
    return start_worker("-c", "3")


@pytest.fixture
def broker(redis_server):
    return Broker(redis_server.client(0))


@pytest.fixture
def kill(broker):
    """End all processes of a worker at once, as the end of its container or of its machine does."""

    def kill(worker):
        worker.container.kill_group()
        broker.forget_sweep()

    return kill


@pytest.fixture
def over(shop, witness, broker, key):
    def over(task, *, runs):
        """The lock is free, no message is left, and the task ran so often and never twice at once."""
        eventually(lambda: held.free(task, key), what="a free lock")
        eventually(broker.quiet, what="a quiet broker")
        assert witness.count("start", key) == runs
        assert held.free(task, key)
        assert not [start for start in witness.overlaps() if start["key"] == key]

    return over


@pytest.fixture
def succeeds(shop):
    """A result object remembers the first final state; a run that follows a lost one stores another."""
    return lambda result: eventually(lambda: shop.app.AsyncResult(result.id).state == "SUCCESS", within=60, what="success")


@pytest.fixture(autouse=True)
def nothing_else_was_freed(shop, request):
    before = held.take(shop.early, f"bystander of {request.node.name}")
    yield
    assert held.record(shop.early, f"bystander of {request.node.name}") == before


@pytest.fixture
def key(request):
    return request.node.name


@pytest.mark.parametrize("name", ["ends_by", "ends_late_by"])
def test_L06_a_retry_that_is_published_while_the_body_goes_on_starts_after_its_end(shop, worker, witness, over, key, name):
    task = getattr(shop, name)
    first = task.delay(key, "retry, and go on until told")
    eventually(lambda: [line for line in worker.logs().splitlines() if first.id in line and "put off" in line])
    assert task.delay(key).duplicate
    shop.open_gate(key, 1)
    eventually(lambda: witness.count("end", key) == 2)
    over(task, runs=2)


@pytest.mark.parametrize("who", ["child", "worker"])
@pytest.mark.parametrize("point", ["requeue: after", "confirm: before", "confirm: after"])
def test_L06_a_crash_in_the_middle_of_a_retry_loses_nothing_that_celery_redelivers(
    shop, worker, witness, kill, over, succeeds, key, point, who
):
    """Until the retry is known to be in the broker both messages are good; the first to start wins, and the other one ends.

    The retry waits a second, or it might begin, and die with the worker, before the worker does: that is one more run.
    """
    task = shop.ends_late_by
    witness.redis.hset("die at", key, point if who == "child" else f"{point}, all")
    first = task.apply_async((key, "retry in a second"), task_id=key)
    eventually(lambda: witness.count("reached", key))
    if who == "worker":
        kill(worker)
        worker.restart()
    succeeds(first)
    over(task, runs=2)


def test_L06_a_crash_after_the_publish_of_a_retry_loses_nothing_with_early_acknowledgement(
    shop, worker, witness, over, succeeds, key
):
    witness.redis.hset("die at", key, "confirm: before")
    succeeds(shop.ends_by.apply_async((key, "retry in a second"), task_id=key))
    assert witness.count("reached", key)
    over(shop.ends_by, runs=2)


def test_L06_a_crash_before_the_publish_of_a_retry_leaves_the_lock_for_half_a_minute_with_early_acknowledgement(
    shop, worker, witness, over, key
):
    """Celery has lost this call: its message was acknowledged, and the retry never left."""
    witness.redis.hset("die at", key, "requeue: after")
    with pytest.raises(WorkerLostError):
        shop.ends_by.apply_async((key, "retry in a second"), task_id=key).get(timeout=30)
    assert all(holder.remaining <= HANDOVER for holder in held.holders(shop.ends_by, key))
    held.lapse(shop.ends_by, key)
    again = shop.ends_by.delay(key)
    assert not again.duplicate
    assert again.get(timeout=30) == key
    over(shop.ends_by, runs=2)


@pytest.mark.parametrize("name", ["ends_by", "ends_late_by"])
def test_L08_a_terminated_run_whose_process_does_not_end_keeps_the_lock_until_it_does(shop, worker, witness, over, key, name):
    task = getattr(shop, name)
    first = task.delay(key, "deaf until told")
    eventually(lambda: witness.count("start", key))
    shop.app.control.revoke(first.id, terminate=True, signal="SIGTERM", destination=[worker.hostname()], reply=True, timeout=30)
    before = held.holder(task, key)
    for _ in range(6):  # renewals; without them it would have lapsed after three
        last = held.holder(task, key)
        eventually(lambda last=last: not (now := held.holder(task, key)) or now.until > last.until)
        assert held.holder(task, key).identity == before.identity
    assert task.delay(key).duplicate
    shop.open_gate(key, 1)
    over(task, runs=1)
    worker.restart()  # billiard goes on to take this process for one that is being ended, also in its next task


def test_L13_the_lock_of_a_worker_that_is_gone_ends_with_its_lease_and_the_next_publisher_takes_it(
    shop, worker, witness, over, kill, key
):
    """With early acknowledgement nobody redelivers: the call itself is lost, as in plain Celery."""
    first = shop.gated.delay(key)
    eventually(lambda: witness.count("start", key))
    kill(worker)
    again = eventually(lambda: (result := shop.gated.delay(key)).id != first.id and result)
    assert not again.duplicate
    shop.open_gate(key, 2)
    worker.restart()
    assert again.get(timeout=60) == 2
    over(shop.gated, runs=2)
    one, two = witness.events("start", key)
    assert two["token"] > one["token"]


def test_L13_the_reaper_frees_the_lock_of_a_worker_that_is_gone(shop, worker, witness, over, kill, key):
    shop.gated.delay(key)
    eventually(lambda: witness.count("start", key))
    kill(worker)
    assert eventually(lambda: (report := reap(shop.app)).lapsed and report).tasks["shop.gated"].lapsed == 1
    assert held.record(shop.gated, key) is None
    worker.restart()
    over(shop.gated, runs=1)


def test_L13_the_redelivered_message_of_a_worker_that_is_gone_takes_the_lock_over_and_runs_once(
    shop, worker, witness, over, kill, key
):
    first = shop.gated_late.delay(key)
    eventually(lambda: witness.count("start", key))
    kill(worker)
    shop.open_gate(key, 2)
    worker.restart()
    assert first.get(timeout=60) == 2
    over(shop.gated_late, runs=2)
    one, two = witness.events("start", key)
    assert two["task_id"] == one["task_id"]
    assert two["token"] > one["token"]


class Frozen:
    """A worker that stands still in the middle of its only run, until ``thaw()``."""

    def __init__(self, worker, result):
        self.worker, self.result = worker, result
        worker.container.signal_group("SIGSTOP")

    def thaw(self):
        self.worker.container.signal_group("SIGCONT")


@pytest.fixture
def freeze(worker, start_worker, broker, witness, shop, kill):
    """Let a worker of its own run this task and freeze it; then start the other one again, which was away meanwhile."""
    frozen = []

    def freeze(task, key):
        kill(worker)
        alone = start_worker("-c", "1")
        result = task.delay(key)
        eventually(lambda: witness.count("start", key))
        if not task.acks_late:  # fill its prefetch, or it would take the next message out of the broker in its sleep
            shop.early.delay(f"fills the prefetch beside {key}")
            eventually(lambda: not broker.waiting())
        frozen.append(Frozen(alone, result))
        broker.forget_sweep()
        worker.restart()
        return frozen[-1]

    yield freeze
    for each in frozen:
        kill(each.worker)


@pytest.mark.parametrize("name", ["gated", "gated_late"])
def test_L19_a_paused_run_that_comes_back_after_its_lease_lapsed_is_told_and_changes_nothing(
    shop, worker, witness, freeze, key, name
):
    """Early acknowledgement: a new publish takes its place. Late: its own message, which the broker hands out again."""
    task = getattr(shop, name)
    old = freeze(task, key)
    if name == "gated":
        new = eventually(lambda: (result := task.delay(key)).id != old.result.id and result)
    else:
        new = old.result
    eventually(lambda: witness.count("start", key) == 2, within=60)
    one, two = witness.events("start", key)
    assert two["token"] > one["token"]
    before = held.holder(task, key)
    assert (before.task_id, before.token) == (new.id, two["token"])

    old.thaw()
    shop.open_gate(key, 1)
    eventually(lambda: witness.count("end", key) == 1)
    assert [event["number"] for event in witness.events("lost", key)] == [1]
    eventually(lambda: [line for line in old.worker.logs().splitlines() if old.result.id in line and "was lost" in line])
    now = held.holder(task, key)
    assert now.identity == before.identity
    assert task.delay(key).duplicate

    shop.open_gate(key, 2)
    eventually(lambda: shop.app.AsyncResult(new.id).state == "SUCCESS")
    assert shop.app.AsyncResult(new.id).get() == 2
    assert [event["number"] for event in witness.events("kept", key)] == [2]
    eventually(lambda: held.free(task, key))
    assert witness.count("start", key) == 2
