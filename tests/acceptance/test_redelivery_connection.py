"""RabbitMQ hands a message out again as soon as the connection is lost on which it was delivered, while its run goes on.

With ``worker_cancel_long_running_tasks_on_connection_loss`` the worker ends that run.
"""

from contextlib import closing

import pytest
from celery import VERSION
from support import held
from support.crossroads import crossroads_on
from support.proxy import Proxy
from support.waiting import eventually

QUEUE = {"plain": {"exchange": "plain", "routing_key": "plain"}}
CONF = {
    "once_more_lease": 2,
    "task_queues": QUEUE,
    "task_default_queue": "plain",
    "worker_prefetch_multiplier": 2,
    "worker_enable_prefetch_count_reduction": False,  # after a lost connection every message comes again at once
}
CANCELS = "worker_cancel_long_running_tasks_on_connection_loss"
#: pool, and whether it cancels. No threads: there py-amqp, whose connection is not for several of them, may lose what the main
#: one says while another one acknowledges, and a worker without any lock then waits for the answer for ever
LIVES = [("prefork", False), ("gevent", False), ("prefork", True), ("gevent", True)]


def named(life):
    pool, cancels = life
    return f"{pool}{', cancels' * cancels}"


@pytest.fixture(scope="module")
def roads(shop_env, redis_server, rabbitmq):
    with crossroads_on(redis_server, {"broker_url": rabbitmq.url, **CONF}, QUEUE) as roads:
        yield roads


@pytest.fixture(scope="module")
def proxy(rabbitmq):
    with closing(Proxy(rabbitmq.port)) as proxy:
        yield proxy


@pytest.fixture(scope="module", params=LIVES, ids=named)
def life(request):
    return request.param


@pytest.fixture(scope="module")
def worker(roads, rabbitmq, proxy, life):
    pool, cancels = life
    url = rabbitmq.url.replace(f":{rabbitmq.port}/", f":{proxy.port}/")
    worker = roads.start_worker(f"{pool}{cancels}", "-P", pool, broker_url=url, **{CANCELS: cancels})
    yield worker
    worker.teardown()
    roads.workers.remove(worker)


@pytest.fixture
def key(request):
    return request.node.name


def lines(worker, call, *words):
    return [line for line in worker.logs().splitlines() if call.id in line and all(word in line for word in words)]


def free(task, key):
    eventually(lambda: held.free(task, key), what="a free lock")


def test_a_late_message_that_comes_again_when_the_connection_is_lost_runs_never_twice_at_once(roads, worker, proxy, life, key):
    """The result is what the last run left. A run that is not cancelled is the only one."""
    _, cancelled = life
    task = roads.task("counted")
    call = task.delay(key)
    roads.running(key)
    proxy.cut()
    if cancelled:
        roads.running(key, 2)
    elif VERSION < (5, 7):  # its prefork pool starts nothing new until one of its runs has ended
        eventually(lambda: len(lines(worker, call, "received")) > 1, what="one more delivery")
    else:
        eventually(lambda: lines(worker, call, "one more delivery", "put off"), what="the message put off")
    assert (task.delay(key).duplicate, task.delay(key).id) == (True, call.id)
    roads.gates.open(f"{key}:1", f"{key}:2")
    runs = 2 if cancelled else 1
    eventually(lambda: roads.app.AsyncResult(call.id).state == "SUCCESS", what="its success")
    free(task, key)
    if not cancelled:
        eventually(lambda: lines(worker, call, "one more delivery", "ended"), what="the end of the message that was put off")
    assert roads.app.AsyncResult(call.id).get() == runs
    assert [run["task_id"] for run in roads.runs(key)] == [call.id] * runs
    assert not roads.overlaps(key)
    tokens = [run["token"] for run in roads.runs(key)]
    assert tokens == sorted(set(tokens))


def test_an_early_message_runs_on_when_the_connection_is_lost_and_runs_once(roads, worker, proxy, key):
    task = roads.task("counted_early")
    call = task.delay(key)
    roads.running(key)
    roads.acknowledged(call)
    received = worker.logs().count("Connected to amqp")
    proxy.cut()
    eventually(lambda: worker.logs().count("Connected to amqp") > received, what="a new connection")
    assert task.delay(key).duplicate
    roads.gates.open(f"{key}:1")
    assert call.get(timeout=30) == 1
    free(task, key)
    assert len(roads.runs(key)) == 1


@pytest.mark.parametrize("life", [life for life in LIVES if life[0] == "prefork"], indirect=True, scope="module", ids=named)
def test_a_message_that_waits_in_the_pool_when_the_connection_is_lost_runs_once(roads, worker, proxy, life, key):
    """It is delivered before there is a slot for it, and once more when the connection is there again. (Greenlets
    have no such queue: a worker without a free one fetches nothing.) Celery 5.6 may not use every slot again after a lost
    connection, so that the worker is a new one.
    """
    worker.restart()
    task = roads.task("counted")
    busy = [task.delay(f"{key}, {n}") for n in range(4)]
    for n in range(4):
        roads.running(f"{key}, {n}")
    call = task.delay(key)
    eventually(lambda: lines(worker, call, "received"))
    proxy.cut()
    eventually(lambda: len(lines(worker, call, "received")) > 1, what="one more delivery")
    roads.gates.open(f"{key}:1", f"{key}:2", *(f"{key}, {n}:{run}" for n in range(4) for run in (1, 2)))
    for one in (*busy, call):
        eventually(lambda one=one: roads.app.AsyncResult(one.id).state == "SUCCESS", what="its success")
    for name in (key, *(f"{key}, {n}" for n in range(4))):
        free(task, name)
        assert not roads.overlaps(name)
    assert len(roads.runs(key)) == 1
