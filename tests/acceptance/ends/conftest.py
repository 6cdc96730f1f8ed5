"""The ends of a run, in the life of one worker per broker and pool.

A test runs in every pool, or where ``pytest.mark.pools("prefork")`` says. The lease is a minute and the queue lease a day
here, and nothing waits so long: a lock that is free was freed, and did not lapse.
"""

import pytest
from support import held
from support.shop_life import shop_at, shop_for_a_module
from support.waiting import eventually
from support.worker_process import WorkerNode, WorkerProcess

BROKERS = ("redis", "rabbitmq")
#: with what a worker needs to run several tasks at once
POOLS = {"prefork": ("-c", "3"), "threads": ("-c", "4"), "gevent": ("-c", "4"), "solo": ()}


def pytest_generate_tests(metafunc):
    if "life" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("pools")
        lives = [(broker, pool) for broker in BROKERS for pool in (marker.args if marker else POOLS)]
        metafunc.parametrize("life", lives, ids=map("-".join, lives), indirect=True, scope="module")


@pytest.fixture(scope="module")
def life(request, shop_env):
    return request.param


@pytest.fixture(scope="module")
def shop(life, request, redis_server):
    url = request.getfixturevalue("rabbitmq").url if life[0] == "rabbitmq" else redis_server.url(0)
    with shop_at(url) as shop:
        yield from shop_for_a_module(shop, redis_server)


@pytest.fixture(scope="module")
def worker(shop, life):
    pool = life[1]
    process = WorkerProcess("-P", pool, *POOLS[pool], name="ends", env={"SHOP_CRASH_POINTS": "1"})
    process.ready()
    yield WorkerNode(process, shop.app)
    process.teardown()


@pytest.fixture(autouse=True)
def nothing_else_was_freed(shop, request):
    """Two calls that nobody touches: one waits and one runs."""
    keys = [f"{phase} beside {request.node.name}" for phase in ("waits", "runs")]
    records = [held.take(shop.gated, keys[0]), held.take(shop.gated, keys[1], running=True)]
    yield
    assert [held.record(shop.gated, key) for key in keys] == records


@pytest.fixture
def key(request):
    return request.node.name


@pytest.fixture
def over(shop, witness, key):
    def over(task, *, runs):
        """The lock is free, the task ran so often and never twice at once, and the next publish is admitted and runs."""
        eventually(lambda: held.free(task, key), what="a free lock")
        assert witness.count("start", key) == runs
        again = task.delay(key)
        assert not again.duplicate
        assert again.get(timeout=30) == key
        assert not [start for start in witness.overlaps() if start["key"] == key]

    return over


@pytest.fixture
def state(shop):
    """The stored state, asked each time: a result object remembers the first final one."""
    return lambda result: shop.app.AsyncResult(result.id).state


@pytest.fixture
def kept(shop, witness, key):
    def kept(task, how, end_the_run, *, hop, **options):
        """Start a run, end it, and stop the message that follows (number ``hop``) before it asks for its run: until then
        the lock waits for it, and a publish is answered with its id.
        """
        first = task.apply_async((key, how), task_id=key, **options)
        (start,) = eventually(lambda: witness.events("start", key))
        witness.redis.hset("die at", key, "start: before, slowly")
        end_the_run(start["pid"])
        eventually(lambda: witness.count("reached", key))
        eventually(lambda: (now := held.holder(task, key)) and (now.phase, now.task_id, now.hops) == ("W", key, [hop]))
        twin = task.delay(key)
        assert (twin.duplicate, twin.id) == (True, key)
        shop.open_gate(key, "act")
        assert eventually(lambda: shop.app.AsyncResult(first.id).state == "SUCCESS")
        assert twin.get(timeout=30) == first.get(timeout=30) == key

    return kept
