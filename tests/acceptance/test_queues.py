"""The queue is part of a lock's identity, by one name however a message comes to it: real workers, exchanges of every kind."""

import pytest
from kombu import Exchange
from support.broker import Broker
from support.crossroads import crossroads_on
from support.lock_db import held
from support.waiting import eventually

from celery_once_more import DuplicateDropped

QUEUES = {
    "plain": {"exchange": "plain", "routing_key": "plain"},
    "fast": {"exchange": "shop", "exchange_type": "direct", "routing_key": "shop.fast"},
    "news": {"exchange": "news", "exchange_type": "topic", "routing_key": "news.*"},
    "rest": {"exchange": "news", "exchange_type": "topic", "routing_key": "rest.#"},
    "left": {"exchange": "copies", "exchange_type": "topic", "routing_key": "copied.*"},
    "right": {"exchange": "copies", "exchange_type": "topic", "routing_key": "*.twice"},
    "cast": {"exchange": "cast", "exchange_type": "fanout", "routing_key": "cast"},
}
#: a short lease: a copy that is put off comes again soon
CONF = {"once_more_lease": 2, "task_queues": QUEUES}


def by(exchange, routing_key, kind="topic"):
    """Through an exchange; on Redis kombu takes one for direct that its connection has not declared."""
    return {"exchange": exchange, "routing_key": routing_key, "declare": [Exchange(exchange, kind)]}


#: queue -> the ways to it
WAYS = {
    "plain": [{"queue": "plain"}, by("plain", "plain", "direct")],
    "fast": [{"queue": "fast"}, by("shop", "shop.fast", "direct")],
    "news": [{"queue": "news"}, by("news", "news.tv"), by("news", "news.sport")],
    "rest": [{"queue": "rest"}, by("news", "rest.of.it"), {"queue": "news", "routing_key": "rest.x"}],
}


@pytest.fixture(scope="module")
def roads(shop_env, redis_server):
    with crossroads_on(redis_server, CONF, QUEUES) as roads:
        roads.broker, roads.locks = Broker(redis_server.client(0)), redis_server.client(2)
        roads.start_worker("roads", concurrency=6)
        yield roads


@pytest.fixture(autouse=True)
def nothing_is_left_nor_went_astray(roads):
    yield
    eventually(roads.broker.quiet, within=20, what="a quiet broker")
    assert roads.broker.waiting("astray") == []
    assert not held(roads.locks)


@pytest.fixture
def key(request):
    return request.node.name


@pytest.mark.parametrize(("one", "other"), [("plain", "fast"), ("plain", "news"), ("news", "rest")])
def test_one_call_to_two_queues_is_two_runs_at_once(roads, key, one, other):
    results = [roads.task("call").apply_async((key,), queue=queue) for queue in (one, other)]
    assert [result.duplicate for result in results] == [False, False]
    roads.running(key, 2)
    roads.over(key, *results, runs=2)


@pytest.mark.parametrize(("one", "other"), [("plain", "fast"), ("plain", "news"), ("news", "rest")])
def test_with_unique_across_queues_it_is_one_run(roads, key, one, other):
    first, again = (roads.task("anywhere").apply_async((key,), queue=queue) for queue in (one, other))
    assert (again.duplicate, again.id) == (True, first.id)
    roads.over(key, first, again, runs=1)


@pytest.mark.parametrize("queue", WAYS)
def test_every_way_to_a_queue_is_one_call(roads, key, queue):
    task, ways = roads.task("call"), WAYS[queue]
    for n, way in enumerate(ways):
        first = task.apply_async((f"{key}{n}",), **way)
        others = [task.apply_async((f"{key}{n}",), **other) for other in ways]
        assert [(other.duplicate, other.id) for other in others] == [(True, first.id)] * len(ways), way
        roads.over(f"{key}{n}", first, runs=1)


WAYS_IN_A_ROW = [pytest.param(queue, way, id=f"{queue}-{n}") for queue, ways in WAYS.items() for n, way in enumerate(ways)]


@pytest.mark.parametrize(("queue", "way"), WAYS_IN_A_ROW)
def test_a_stranger_sends_the_same_call_as_one_who_knows_the_task(roads, key, queue, way):
    first = roads.stranger.send_task("crossroads.call", (key,), **way)
    roads.running(key)
    again = roads.task("call").apply_async((key,), queue=queue)
    assert (again.duplicate, again.id) == (True, first.id)
    second = roads.stranger.send_task("crossroads.call", (key,), **way)
    with pytest.raises(DuplicateDropped):
        second.get(timeout=20)
    roads.over(key, first, runs=1)


@pytest.mark.parametrize("queue", WAYS)
def test_a_bare_message_is_refused_by_a_call_that_was_published_with_a_ticket(roads, key, queue):
    first = roads.task("call").apply_async((key,), queue=queue)
    roads.running(key)
    for n, way in enumerate(way for way in WAYS[queue] if "exchange" in way):
        bare = roads.send_bare("call", key, f"{key} {n}", **way)
        eventually(bare.ready, within=20, what=f"an end of {way}")
        assert (bare.state, bare.result.holder) == ("REVOKED", first.id)
    direct = roads.send_bare("call", key, f"{key} direct", exchange="", routing_key=queue)
    eventually(direct.ready, within=20)
    assert (direct.state, direct.result.holder) == ("REVOKED", first.id)
    roads.over(key, first, runs=1)


@pytest.mark.parametrize(("queue", "way"), WAYS_IN_A_ROW)
def test_a_rescheduled_message_comes_to_its_own_queue_again(roads, key, queue, way):
    task = roads.task("one_at_a_time")
    first = task.apply_async((key,), queue=queue)
    roads.running(key)
    second = roads.stranger.send_task(task.name, (key,), **way)
    message = eventually(lambda: roads.broker.find(second.id, once_more_tries=1), within=20, what="the message put off")
    info = message["properties"]["delivery_info"]
    assert (info["exchange"], info["routing_key"]) == ("", queue)
    roads.over(key, first, second, runs=2)
    assert not roads.overlaps(key)


@pytest.mark.parametrize("way", WAYS["news"][:2], ids=["by queue", "by key"])
def test_a_retry_comes_to_its_own_queue_again(roads, key, way):
    result = roads.task("again").apply_async((key,), **way)
    roads.over(key, result, runs=2)
    assert [run["exchange"] for run in roads.runs(key)] == ["news", "news"]


def test_copies_that_an_exchange_makes_run_once_and_do_not_multiply(roads, key):
    """Two queues get the message; the copy that must wait is put off, three times here, and stays one."""
    first = roads.task("call").apply_async((key,), **by("copies", "copied.twice"))
    again = roads.stranger.send_task("crossroads.call", (key,), **by("copies", "copied.twice"))
    roads.running(key)
    (worker,) = roads.workers
    eventually(lambda: worker.logs().count(f"[{first.id}]: lock") >= 3, within=20, what="three times put off")
    with pytest.raises(DuplicateDropped):
        again.get(timeout=20)
    copies = [message for message in roads.broker.unacknowledged() if message["headers"]["id"] == first.id]
    assert len(copies) <= 2, "one runs, and one waits"
    roads.over(key, first, runs=1)


def test_a_broadcast_is_one_run_and_its_copies_end(roads, key):
    worker = roads.start_worker("cast", concurrency=2)
    first = roads.task("call").apply_async((key,), queue="cast")
    roads.running(key)
    again = roads.task("call").apply_async((key,), **by("cast", "cast", "fanout"))
    assert (again.duplicate, again.id) == (True, first.id)
    second = roads.stranger.send_task("crossroads.call", (key,), **by("cast", "cast", "fanout"))
    with pytest.raises(DuplicateDropped):
        second.get(timeout=20)
    eventually(lambda: sum(w.logs().count(f"[{first.id}] received") for w in roads.workers) == 2, within=20)
    eventually(lambda: sum(w.logs().count(f"[{second.id}]: lock") for w in roads.workers) == 2, within=20,
               what="both copies dropped, while the lock is held")  # fmt: skip
    roads.over(key, first, runs=1)
    assert sum(w.logs().count(f"[{first.id}] received") for w in roads.workers) == 2, "no more copies were sent"
    eventually(roads.broker.quiet, within=20, what="a quiet broker")  # a killed worker keeps what it has not acknowledged
    roads.workers.remove(worker)
    worker.teardown()
