"""The lock store, a Redis of its own here, is away while workers start messages."""

import json
import signal

import pytest
from support.lock_db import held
from support.redis_server import RedisServer
from support.waiting import eventually

from celery_once_more import StoreUnavailable

pytest_plugins = ["support.floor", "support.app_fixtures"]


@pytest.fixture
def conf(conf, lock_server):
    """Messages that are put off come again after a second, a lease."""
    return {"once_more_redis_url": lock_server.url(0), "once_more_lease": 1, **conf}


#: how long a store that does not answer is waited for: not at all, but for a fraction of a second
IMPATIENT = {"socket_timeout": 0.3, "socket_connect_timeout": 0.3}


def published(floor, *names):
    """A call of each of these tasks, admitted while the store was there."""
    return [getattr(floor.shop, name).delay(name) for name in names]


def test_messages_are_put_off_until_the_store_is_back_and_then_run_once_under_their_lock(floor, start, lock_server):
    """Also where it has forgotten everything meanwhile. A task that says ``proceed`` goes over the setting."""
    names = ("gated", "gated_early")
    *calls, proceeds = published(floor, *names, "proceeds")
    floor.gates.open_all()
    lock_server.kill()
    start("-c", "2", SHOP_SIGNALS="tell")
    for call in calls:
        eventually(lambda: len(floor.told("store_unavailable", task_id=call.id, act="start")) > 1, within=60)  # noqa: B023
    assert proceeds.get(timeout=60) == "proceeds"
    assert [floor.runs(name) for name in names] == [[], []]
    assert {call.state for call in calls} == {"PENDING"}
    lock_server.start()
    assert [call.get(timeout=60) for call in calls] == list(names)
    floor.settled()
    for name in names:
        (run,) = floor.runs(name)
        assert run["token"]
        assert run["retries"] == 0
    (run,) = floor.runs("proceeds")
    assert run["token"] is None
    assert floor.told("store_unavailable", task_id=proceeds.id, act="start")
    assert len(floor.told("lock_acquired", phase="running")) == len(floor.told("lock_released", reason="ended as SUCCESS")) == 2


@pytest.mark.conf(once_more_on_outage="proceed")
def test_with_proceed_messages_run_unlocked_with_a_warning(floor, start, lock_server):
    late, early = published(floor, "gated", "gated_early")
    lock_server.kill()
    floor.gates.open_all()
    worker = start("-c", "2")
    assert (late.get(timeout=60), early.get(timeout=60)) == ("gated", "gated_early")
    for call, name in ((late, "gated"), (early, "gated_early")):
        (run,) = floor.runs(name)
        assert run["token"] is None
        line = next(line for line in worker.logs().splitlines() if f"[{call.id}]: lock" in line)
        assert "WARNING" in line
        assert "the lock store did not answer" in line
        assert "runs without a lock" in line


@pytest.mark.conf(once_more_on_outage="proceed", once_more_redis_options=IMPATIENT)
def test_a_run_without_a_lock_frees_the_one_that_its_message_waited_with(floor, start, lock_server):
    """The store is only frozen: it still has the lock when it is back, before the run ends."""
    published(floor, "gated")
    lock_server.signal(signal.SIGSTOP)
    start("-c", "1")
    floor.running("gated")
    lock_server.signal(signal.SIGCONT)
    assert held(lock_server.client(0))
    floor.gates.open_all()
    floor.settled()
    assert floor.runs("gated")[0]["token"] is None
    assert not held(lock_server.client(0))


@pytest.fixture
def write_server(redis_server):
    server = RedisServer().start()
    yield server
    server.stop()


def test_where_putting_off_fails_too_a_late_message_goes_back_and_an_early_one_fails(
    floor, start, lock_server, write_server, conf
):
    """The worker reads from the broker that stays, and publishes through a server that dies and does not come back.

    It is frozen from before the publish until after that death, so that it starts nothing in between.
    """
    worker_conf = {**conf, "broker_write_url": write_server.url(0), "task_publish_retry_policy": {"max_retries": 0}}
    worker = start("-c", "2", "--without-heartbeat", SHOP_CONF=json.dumps(worker_conf))
    worker.signal_group("SIGSTOP")
    late, early = published(floor, "gated", "gated_early")
    lock_server.kill()
    write_server.kill()
    worker.signal_group("SIGCONT")
    eventually(early.ready, within=60)
    assert early.state == "FAILURE"
    assert type(early.result) is StoreUnavailable
    eventually(lambda: worker.logs().count(f"[{late.id}] received") > 1, within=60, what="the late message's return")
    assert late.state == "PENDING"
    floor.gates.open_all()
    lock_server.start()
    assert late.get(timeout=60) == "gated"
    floor.settled()
    assert len(floor.runs("gated")) == 1
    assert floor.runs("gated_early") == []
