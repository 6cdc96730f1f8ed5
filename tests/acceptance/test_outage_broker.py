"""The broker, a RabbitMQ, is out of one worker's reach in the middle of a run, and hands its message to another worker."""

from contextlib import closing

import pytest
from celery import VERSION
from kombu import Connection
from kombu.exceptions import OperationalError
from support import held
from support.crossroads import crossroads_on
from support.proxy import Proxy
from support.waiting import eventually

LEASE_S = 1
QUEUE = {"plain": {"exchange": "plain", "routing_key": "plain"}}
CONF = {
    "once_more_lease": LEASE_S,
    "task_queues": QUEUE,
    "task_default_queue": "plain",
    "worker_enable_prefetch_count_reduction": False,
}


@pytest.fixture(scope="module")
def roads(shop_env, redis_server, rabbitmq):
    with crossroads_on(redis_server, {"broker_url": rabbitmq.url, **CONF}, QUEUE) as roads:
        yield roads


@pytest.fixture(scope="module")
def proxy(rabbitmq):
    with closing(Proxy(rabbitmq.port)) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def proxied(rabbitmq, proxy):
    return rabbitmq.url.replace(f":{rabbitmq.port}/", f":{proxy.port}/")


@pytest.fixture(scope="module", params=[False, True], ids=["goes on", "cancels"])
def cancels(request):
    return request.param


@pytest.fixture(scope="module")
def worker(roads, proxied, cancels):
    setting = {"worker_cancel_long_running_tasks_on_connection_loss": cancels}
    worker = roads.start_worker(f"near{cancels}", broker_url=proxied, **setting)
    yield worker
    worker.teardown()
    roads.workers.remove(worker)


@pytest.fixture
def second(roads):
    """Call it for a second worker, which reaches the broker."""
    started = []

    def start():
        started.append(roads.start_worker("second"))
        return started[-1]

    yield start
    for worker in started:
        worker.teardown()
        roads.workers.remove(worker)


@pytest.fixture(autouse=True)
def reach(proxy, worker):
    """In the end the worker has the broker again."""
    yield
    proxy.mend()
    if VERSION < (5, 7):  # its prefork pool may start nothing new after a lost connection
        worker.restart()
        return
    eventually(lambda: worker.logs().count("Connected to") > worker.logs().count("Connection to broker lost"), within=60,
               what="a connection of the worker")  # fmt: skip


@pytest.fixture
def key(request):
    return request.node.name


def outlives(task, key, leases=2):
    """Wait until the one who runs now was renewed for so many leases."""
    began = held.holder(task, key)
    assert began.phase == "R"
    eventually(lambda: held.holder(task, key).until > began.until + leases * LEASE_S * 1000, what="renewals")
    assert held.holder(task, key).identity == began.identity


def test_a_second_worker_that_is_handed_the_message_never_runs_it_beside_the_first(roads, worker, second, proxy, cancels, key):
    """It puts it off while the first one's run lives. One that was cancelled counts as alive until its worker has the broker
    again: before, Celery does not look whether the process has ended.
    """
    task = roads.task("counted")
    call = task.delay(key)
    roads.running(key)
    other = second()
    proxy.refuse()
    eventually(lambda: other.logs().count(f"[{call.id}]: lock") > 1, what="the message put off twice")
    outlives(task, key)
    proxy.mend()
    if cancels:
        eventually(lambda: len(roads.runs(key)) > 1, what="a second run")
    assert task.delay(key).duplicate
    roads.gates.open(f"{key}:1", f"{key}:2")
    eventually(lambda: roads.app.AsyncResult(call.id).state == "SUCCESS", what="its success")
    eventually(lambda: held.free(task, key), what="a free lock")
    runs = roads.runs(key)
    assert [run["task_id"] for run in runs] == [call.id] * (2 if cancels else 1)
    assert roads.app.AsyncResult(call.id).get() == len(runs)
    assert not roads.overlaps(key)


def test_an_early_message_keeps_its_lock_while_its_worker_has_no_broker(roads, worker, proxy, key):
    task = roads.task("counted_early")
    call = task.delay(key)
    roads.running(key)
    roads.acknowledged(call)
    proxy.refuse()
    outlives(task, key)
    assert task.delay(key).duplicate
    roads.gates.open(f"{key}:1")
    assert call.get(timeout=30) == 1
    eventually(lambda: held.free(task, key), what="a free lock")
    assert len(roads.runs(key)) == 1


def test_a_publish_to_a_broker_that_is_out_of_reach_fails_and_holds_nothing(roads, worker, proxy, proxied, key):
    task = roads.task("counted")
    away = Proxy(proxy.port)
    away.refuse()
    with Connection(proxied.replace(f":{proxy.port}/", f":{away.port}/")) as connection, pytest.raises(OperationalError):
        task.apply_async((key,), connection=connection, retry=False)
    assert held.free(task, key)
    call = task.delay(key)
    assert not call.duplicate
    roads.running(key)
    roads.gates.open(f"{key}:1")
    assert call.get(timeout=30) == 1
