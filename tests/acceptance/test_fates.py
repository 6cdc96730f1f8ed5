"""The table of redelivery is Celery's own: real workers whose children, or which themselves, are killed in each row of it."""

import uuid

import pytest
from kombu import Queue
from support.shop_life import shop_for_a_module
from support.waiting import eventually
from support.worker_process import WorkerProcess

from celery_once_more.testing.redelivery import fate

QUEUE = "celery"
#: retries that a row's message has behind it
BEHIND = {"no retry": (0,), "retry": (0, 1), "retry without end": (1,)}


@pytest.fixture(scope="module")
def shop(shop_env, redis_server):
    import shop_fates

    yield from shop_for_a_module(shop_fates, redis_server)


@pytest.fixture
def start(shop):
    workers = []

    def start(slots, name):
        workers.append(WorkerProcess("-c", str(slots), app="shop_fates", name=name))
        workers[-1].ready()
        return workers[-1]

    yield start
    for worker in workers:
        worker.teardown()


@pytest.fixture(scope="module")
def publish(shop, redis_server):
    """``publish(death)``: a message for each row and each way to come to it -> ``{(row, retries, redelivered): task id}``."""

    def publish(death):
        # a worker of the last test may still wait at the broker, and would take the first message of this one along
        eventually(lambda: not redis_server.client(0).info("clients")["blocked_clients"], what="a broker that nobody waits at")
        ids = {}
        for redelivered in (True, False):
            for row, task in shop.TASKS.items():
                for retries in BEHIND[row[3]]:
                    ids[row, retries, redelivered] = task_id = str(uuid.uuid4())
                    task.apply_async((death,), task_id=task_id, retries=retries)
            if redelivered:
                take_and_give_back(shop.app, len(ids))
        return ids

    return publish


def take_and_give_back(app, count):
    """The broker has these messages of somebody who took them, and gave them back."""
    with app.connection_for_read() as connection:
        queue = Queue(QUEUE)(connection.default_channel)
        for message in [queue.get() for _ in range(count)]:
            message.requeue()


def let_time_pass(broker):
    """Of every message that was not acknowledged the visibility timeout is over, as if it had been delivered long ago."""
    return broker.zadd("unacked_index", dict.fromkeys(broker.hkeys("unacked"), 0), xx=True, ch=True)


@pytest.fixture(scope="module")
def runs(shop, redis_server):
    """``runs(ids)``: of each message its runs, as soon as none of them is anywhere any more, and ``over(task_id)``."""
    broker = redis_server.client(0)

    def seen():
        found = {}
        for start in shop.witness.events("start"):
            found.setdefault(start["key"], []).append((start["redelivered"], start["retries"]))
        return found

    def nowhere(ids, over):
        started = set(ids) <= set(seen()) and all(map(over, ids))
        return started and not broker.llen(QUEUE) and not broker.hlen("unacked")

    def runs(ids, over=lambda task_id: True):
        eventually(lambda: nowhere(ids, over), within=120, what="a broker that has nothing left to deliver")
        # between the broker and a worker's memory a message is nowhere: what comes after it says that it is through
        assert shop.last.delay().get(timeout=60) == "last"
        eventually(lambda: nowhere(ids, over), what="a broker that has nothing left to deliver")
        return seen()

    return runs


def told(shop, row, retries, redelivered, death):
    """What the table says: the runs of one message, each with its redelivered flag and its retries."""
    kind = fate(shop.TASKS[row], death, retries=retries).kind
    again = {"lost": [], "redelivered": [(True, retries)], "retried": [(False, retries + 1)]}
    return [(redelivered, retries), *again[kind]]


def as_told(shop, ids, found, death):
    differing = {way: found[task_id] for way, task_id in ids.items() if found[task_id] != told(shop, *way, death)}
    return not differing or pytest.fail(f"not as the table says: {differing}")


def test_of_a_killed_child_the_message_comes_again_in_the_rows_that_say_so(shop, start, publish, runs):
    ids = publish("child")
    start(2, "children")
    over = lambda task_id: shop.app.AsyncResult(task_id).ready()  # noqa: E731  (the main process tells of what it lost)
    assert as_told(shop, ids, runs(ids.values(), over), "child")


def test_of_a_killed_machine_the_message_comes_again_in_the_rows_that_say_so(shop, start, publish, runs, redis_server):
    ids = publish("machine")
    machine = start(len(ids), "machine")
    started = set(ids.values())
    eventually(lambda: started <= {e["key"] for e in shop.witness.events("start")}, within=120, what="every message in its run")
    machine.kill_group()
    assert let_time_pass(redis_server.client(0))
    start(1, "the next machine")
    assert as_told(shop, ids, runs(ids.values()), "machine")
