"""Locks with RabbitMQ as the broker: queues of every kind, and messages that it delays itself (a quorum queue and an ETA)."""

import pytest
from support.crossroads import crossroads_on
from support.waiting import eventually

from celery_once_more import DuplicateDropped

QUORUM = {"x-queue-type": "quorum"}
QUEUES = {
    "plain": {"exchange": "plain", "routing_key": "plain"},
    "news": {"exchange": "news", "exchange_type": "topic", "routing_key": "news.*", "queue_arguments": QUORUM},
    "more": {"exchange": "news", "exchange_type": "topic", "routing_key": "more.*", "queue_arguments": QUORUM},
    "steady": {"exchange": "steady", "exchange_type": "direct", "routing_key": "steady", "queue_arguments": QUORUM},
}
#: the default queue, which nobody reads; a delayed message can go astray to it, as it has no direct exchange
ASTRAY = {"astray": {"exchange": "astray", "exchange_type": "topic", "routing_key": "astray"}}


@pytest.fixture(scope="module")
def roads(shop_env, redis_server, rabbitmq):
    conf = {"broker_url": rabbitmq.url, "task_queues": QUEUES | ASTRAY, "once_more_lease": 5}
    with crossroads_on(redis_server, conf, QUEUES) as roads:
        roads.start_worker("rabbit", concurrency=4)
        yield roads


@pytest.fixture
def key(request):
    return request.node.name


@pytest.fixture(autouse=True)
def nothing_went_astray(roads):
    yield
    with roads.app.connection_for_read() as connection:
        queue = roads.app.amqp.queues["astray"](connection.default_channel)
        queue.declare()
        assert queue.get() is None


def came_delayed(run):
    return run["exchange"].startswith("celery_delayed_")


@pytest.mark.parametrize("queue", QUEUES)
def test_a_webhook_that_comes_twice_is_one_run(roads, key, queue):
    first, again = (roads.task("call").apply_async((key,), queue=queue) for _ in range(2))
    assert (again.duplicate, again.id) == (True, first.id)
    roads.running(key)
    bare = roads.send_bare("call", key, f"{key} bare", exchange="", routing_key=queue)
    with pytest.raises(DuplicateDropped):
        bare.get(timeout=20)
    roads.over(key, first, again, runs=1)


def test_two_queues_of_a_topic_exchange_are_two_runs(roads, key):
    news, more = (roads.task("call").apply_async((key,), queue=queue) for queue in ("news", "more"))
    assert not news.duplicate
    assert not more.duplicate
    roads.running(key, 2)
    roads.over(key, news, more, runs=2)


def test_a_key_that_a_binding_fits_is_the_same_call_as_the_queue_itself(roads, key):
    first = roads.stranger.send_task("crossroads.call", (key,), exchange="news", routing_key="news.tv")
    roads.running(key)
    again = roads.task("call").apply_async((key,), queue="news")
    assert (again.duplicate, again.id) == (True, first.id)
    roads.over(key, first, runs=1)


def test_a_message_that_the_broker_delays_holds_its_lock_meanwhile_and_runs(roads, key):
    first = roads.task("call").apply_async((key,), queue="news", countdown=2)
    again = roads.task("call").apply_async((key,), queue="news")
    assert (again.duplicate, again.id) == (True, first.id)
    (run,) = roads.running(key)
    assert came_delayed(run)
    roads.over(key, first, again, runs=1)


def test_a_delayed_message_without_a_ticket_takes_the_lock_of_its_own_queue(roads, key):
    first = roads.stranger.send_task("crossroads.call", (key,), queue="more", countdown=1)
    (run,) = roads.running(key)
    assert came_delayed(run)
    again = roads.task("call").apply_async((key,), queue="more")
    assert (again.duplicate, again.id) == (True, first.id)
    other = roads.task("call").apply_async((key,), queue="news")
    assert not other.duplicate
    roads.running(key, 2)
    roads.over(key, first, other, runs=2)


def test_a_name_published_with_an_eta_takes_the_lock_of_its_own_queue(roads, key):
    first = roads.app.send_task("crossroads.call", (key,), queue="more", countdown=2)
    again = roads.task("call").apply_async((key,), queue="more")
    assert (again.duplicate, again.id) == (True, first.id)
    roads.over(key, first, runs=1)


@pytest.mark.parametrize("countdown", [None, 1], ids=["at once", "delayed"])
@pytest.mark.parametrize("queue", QUEUES)
def test_a_rescheduled_message_comes_to_its_own_queue_again(roads, key, queue, countdown):
    task = roads.task("one_at_a_time")
    first = task.apply_async((key,), queue=queue)
    roads.running(key)
    second = task.apply_async((key,), queue=queue, countdown=countdown)
    (worker,) = roads.workers
    eventually(lambda: worker.logs().count(f"[{second.id}]: lock") >= 2, within=20, what="the message put off")
    roads.over(key, first, second, runs=2)
    assert not roads.overlaps(key)


@pytest.mark.parametrize("countdown", [None, 1], ids=["at once", "delayed"])
@pytest.mark.parametrize("queue", QUEUES)
def test_a_retry_comes_to_its_own_queue_again(roads, key, queue, countdown):
    result = roads.task("again").apply_async((key,), queue=queue, countdown=countdown)
    roads.running(key)
    roads.gates.open(f"{key}:1")
    roads.running(key, 2)
    again = roads.task("again").apply_async((key,), queue=queue)
    assert (again.duplicate, again.id) == (True, result.id)
    roads.over(key, result, runs=2)
