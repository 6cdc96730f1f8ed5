"""A lock store that is 20 ms away, each way, changes nothing: nobody gives up, and no step overtakes another.

``ONCE_MORE_TEST_LATENCY_MS=20`` puts it as far away for all the acceptance tests.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
from support import scenarios
from support.proxy import Proxy
from support.waiting import eventually

pytest_plugins = ["support.floor"]

FAR_S = 0.02
PUBLISHERS = 8
#: kombu 5.7 and later have the last two: an unacknowledged message comes again as soon as the timeout says so
COMES_AGAIN = {"visibility_timeout": 3, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}


@pytest.fixture(scope="module")
def proxy(redis_server):
    proxy = Proxy(redis_server.port)
    proxy.delay(FAR_S)
    yield proxy
    proxy.close()


@pytest.fixture
def conf(proxy):
    return {"once_more_redis_url": proxy.redis(2), "once_more_lease": 2, "broker_transport_options": COMES_AGAIN}


def test_of_many_calls_at_once_one_is_admitted_and_runs_once(floor, start):
    start("-c", "2")
    task = floor.shop.gated
    with ThreadPoolExecutor(PUBLISHERS) as publishers:
        answers = list(publishers.map(lambda _: task.delay("many"), range(PUBLISHERS)))
    (admitted,) = [answer for answer in answers if not answer.duplicate]
    assert {answer.id for answer in answers} == {admitted.id}
    floor.running("many")
    floor.gates.open_all()
    assert admitted.get(timeout=60) == "many"
    floor.settled()
    assert len(floor.runs("many")) == 1
    assert floor.free()


def test_a_run_is_renewed_for_longer_than_its_lease(floor, start):
    start("-c", "2")
    first = floor.shop.gated.delay("long")
    floor.running("long")
    info = floor.shop.gated.lock_info("long")
    eventually(lambda: floor.shop.gated.lock_info("long").remaining + _age(floor, "long") > info.remaining + 4, what="renewals")
    assert floor.shop.gated.delay("long").id == first.id
    floor.gates.open_all()
    assert first.get(timeout=60) == "long"
    floor.settled()
    assert [e["lost"] for e in floor.witness.events("checked", "long")] == [False]


def _age(floor, key):
    """Seconds since the run of this key began, on the server's clock."""
    seconds, microseconds = floor.witness.redis.time()
    return seconds + microseconds / 1e6 - floor.runs(key)[0]["at"]


@pytest.mark.parametrize(
    "scenario",
    [
        scenarios.retry_that_waits,
        scenarios.retry_before_the_last_runs_end,
        scenarios.copy_of_a_message_that_a_retry_replaced,
        scenarios.child_dies_between_the_steps_of_its_end,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_what_goes_right_nearby_goes_right_far_away(floor, start, scenario):
    start("-c", "4", SHOP_KILLS="1")
    assert scenario(floor) == []


def test_a_worker_that_dies_loses_nothing(floor, start):
    """Its message comes to a second worker, which waits for the lease to end."""
    assert scenarios.crash_after_a_copy_was_answered(floor, start) == []
