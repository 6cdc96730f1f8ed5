"""What a run asks of the lock store, and what it is told when it publishes itself."""

import pytest
from support.commands import commands_of

pytest_plugins = ["support.floor"]

#: the keeper's beat is minutes away, so that whatever is counted is the runs' own
CONF = {"once_more_lease": 1200}
WORKER = ("-c", "1"), {"SHOP_SIGNALS": "tell"}
pytestmark = pytest.mark.conf(**CONF)


@pytest.fixture
def warm(floor, living):
    """Connections are open and scripts are loaded, in the publisher and in the one child."""
    floor.gates.open_all()
    floor.shop.retries.delay("warm-up").get(timeout=60)
    floor.settled()


def test_a_run_is_two_evalsha_and_one_more_for_its_publish(floor, warm, redis_server):
    with commands_of(redis_server, db=2) as sent:
        assert floor.shop.gated.delay("a").get(timeout=60) == "a"
        floor.settled()
    # gated asks for its own lock once: current_lock.check()
    assert sent == ["EVALSHA"] * (1 + 2 + 1)


def test_a_run_that_retries_is_three_evalsha(floor, warm, redis_server):
    with commands_of(redis_server, db=2) as sent:
        assert floor.shop.retries.delay("a").get(timeout=60) == "a"
        floor.settled()
    # publish; start, check, requeue, confirm; start, check, finish
    assert sent == ["EVALSHA"] * (1 + 4 + 3)


def test_a_run_without_a_lock_asks_nothing(floor, warm, redis_server):
    with commands_of(redis_server, db=2) as sent:
        assert floor.shop.without_lock.delay("a").get(timeout=60) == "a"
        floor.settled()
    assert sent == []
    assert floor.runs("a")[0]["token"] is None


def test_a_run_that_publishes_its_own_digest_is_told_the_remedies(floor, living):
    first = floor.shop.publishes_itself.delay("a")
    assert first.get(timeout=60) == [True, first.id]
    floor.settled()
    assert len(floor.runs("a")) == 1
    line = next(line for line in living.logs().splitlines() if "from inside its run" in line)
    for part in ("WARNING", floor.shop.publishes_itself.name, first.id, "retry()"):
        assert part in line
