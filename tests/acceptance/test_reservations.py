"""A child that dies in its effect: the message comes again, waits for the lease of the dead attempt, and the policy decides."""

import importlib
import os
import sys

import pytest
from support.shop_life import shop_at
from support.waiting import eventually
from support.worker_process import WorkerProcess


@pytest.fixture(scope="module", params=["redis", "rabbitmq"])
def shop(request, shop_env, redis_server, tmp_path_factory):
    """The module, its worker, and its rows in SQLite; on either broker."""
    url = request.getfixturevalue("rabbitmq").url if request.param == "rabbitmq" else redis_server.url(0)
    redis_server.client(0).flushall()
    os.environ["SHOP_DATABASE"] = f"sqlite:///{tmp_path_factory.mktemp('rows')}/rows.db"
    with shop_at(url):
        sys.modules.pop("shop_reservations", None)
        shop = importlib.import_module("shop_reservations")
        shop.reservations.create_table()
        shop.worker = WorkerProcess("-c", "2", app="shop_reservations", name="reserves", env={"SHOP_CRASH_POINTS": "1"})
        shop.worker.ready()
        yield shop
        shop.worker.teardown()
        shop.app.backend.result_consumer.cancel_for = lambda task_id: None
    del os.environ["SHOP_DATABASE"]


@pytest.fixture
def key(request):
    return request.node.name


@pytest.fixture(params=["plain", "unique"])
def call(request, shop, key):
    """``call("repeat", dies=True)`` -> the result of a call whose first attempt dies in its effect."""

    def call(policy, *, dies=False):
        if dies:
            shop.witness.redis.hset("dies", key, 1)
        return shop.app.tasks[f"shop_reservations.{request.param}_{policy}"].delay(key)

    return call


def state(shop, result):
    return shop.app.AsyncResult(result.id).state


def test_it_waits_for_the_lease_and_repeats_under_the_same_key(shop, call, key):
    result = call("repeat", dies=True)
    eventually(lambda: state(shop, result) == "SUCCESS", within=60, what="success")
    assert shop.app.AsyncResult(result.id).get() == f"charged {key}"
    charges = shop.witness.events("charge", key)
    assert len(charges) == 2
    assert len({charge["dedup_key"] for charge in charges}) == 1
    starts = shop.witness.events("start", key)
    assert len(starts) >= 3  # the one that died, one that came too early, the one that took over
    assert {start["retries"] for start in starts} == {0}
    assert shop.worker.logs().count("put off for") >= 1
    assert not [start for start in shop.witness.overlaps() if start["key"] == key]


def test_a_refusal_fails_it_without_a_retry_and_a_person_resolves_it(shop, call, key):
    result = call("refuse", dies=True)
    eventually(lambda: state(shop, result) == "FAILURE", within=60, what="its failure")
    assert "nobody knows whether it was done" in str(shop.app.AsyncResult(result.id).result)
    assert {start["retries"] for start in shop.witness.events("start", key)} == {0}
    assert len(shop.witness.events("charge", key)) == 1
    assert ("charge", key) in [unknown.key for unknown in shop.reservations.unknowns()]
    shop.reservations.resolve(("charge", key), done="by hand")
    assert call("refuse").get(timeout=30) == "by hand"
