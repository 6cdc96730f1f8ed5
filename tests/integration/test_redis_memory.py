"""What the store remembers, for how long, in how many bytes; and that reaping grows with what lapsed, not with what is held."""

import pytest
from celery import Celery
from contract.stores import BUCKETS, WAIT_MS, acquire, start, store_at, ticket
from support.redis_server import RedisServer
from support.waiting import eventually

from celery_once_more.reaper import reap
from celery_once_more.runtime import runtime

WINDOW_MS = 1_000_000
HELD, LAPSED = 60_000, 1_000


@pytest.fixture
def client(clean_redis):
    return clean_redis.client(0)


@pytest.fixture
def store(clean_redis):
    return store_at(clean_redis.url(0), window_ms=WINDOW_MS)


def pass_time(client, keys, ms):
    """The time to live of the memory's keys, ``ms`` later: nobody waits for hours here."""
    for key in keys:
        left = client.pttl(key)
        assert left != -1, f"{key} lives for ever"
        client.pexpire(key, left - ms) if left > ms else client.delete(key)


def finish(store, series):
    """Calls of one lock, so that they share one memory."""
    of = ticket(series=series)
    start(store, of)
    assert store.finish(of, run="run") == "freed"


def remembered(store, series):
    return store.look(ticket(series=series), run="run")[0] == "done"


@pytest.mark.parametrize("pace", [3, 4, 7])
def test_a_finished_call_is_remembered_for_one_window_at_least_and_two_at_most(pace, store, client):
    """Others finish all the while, ``pace`` of them in each window."""
    keys, step = store.keys.done(ticket().digest), WINDOW_MS // pace
    for now in range(6 * pace):
        finish(store, now)
        for then in range(now + 1):
            age = (now - then) * step
            if age <= WINDOW_MS - step // 2:
                assert remembered(store, then), f"{then} is forgotten after {age} ms"
            if age >= 2 * WINDOW_MS:
                assert not remembered(store, then), f"{then} is remembered after {age} ms"
        pass_time(client, keys, step)


def test_a_call_after_which_nothing_ends_is_forgotten_after_two_windows(store, client):
    finish(store, 1)
    keys = store.keys.done(ticket().digest)
    pass_time(client, keys, 2 * WINDOW_MS - 50_000)
    assert remembered(store, 1)
    pass_time(client, keys, 50_000)
    assert not remembered(store, 1)
    assert client.exists(*keys) == 0


def test_the_memory_has_two_generations_and_no_more(store, client):
    keys, seen = store.keys.done(ticket().digest), set()
    for series in range(30):
        finish(store, series)
        seen |= set(client.keys("*"))
        assert client.scard(keys[0]) + client.scard(keys[1]) <= 7
        pass_time(client, keys, WINDOW_MS // 3)
    assert {key for key in seen if not key.endswith("token")} == set(keys)


def test_a_message_that_was_replaced_is_remembered_beside_its_call(store, client):
    of = ticket()
    start(store, of)
    store.requeue(of, run="run", hop=1, wait_ms=WAIT_MS)
    store.confirm(of, hop=1, wait_ms=WAIT_MS)
    young, _ = store.keys.done(of.digest)
    assert client.smembers(young) == {of.spent_member}
    start(store, of.at_hop(1), "next")
    store.finish(of.at_hop(1), run="next")
    assert client.smembers(young) == {of.spent_member, of.done_member}


def test_a_finished_call_costs_few_bytes(store, client):
    """They are kept as integers."""
    for series in range(400):
        finish(store, series)
    young, _ = store.keys.done(ticket().digest)
    assert client.object("encoding", young) == "intset"
    assert client.memory_usage(young, samples=0) / 400 <= 16


@pytest.fixture(scope="module")
def full():
    """A server on which 60,000 locks are held, and what they took."""
    server = RedisServer().start()
    client, store = server.client(0), store_at(server.url(0))
    acquire(store, ticket("before"))  # scripts, connections
    before = client.info("memory")["used_memory"]
    for n in range(HELD):
        acquire(store, ticket(n, task_id=f"0f8fad5b-d9cb-469f-a165-{n:012}", task="shop.tasks.settle_payment"))
    server.bytes_a_lock = (client.info("memory")["used_memory"] - before) / HELD
    yield server
    server.stop()


def test_a_held_lock_takes_320_bytes_at_most_with_its_place_in_the_index(full):
    assert full.bytes_a_lock <= 320


def lapse(store, numbers):
    for n in numbers:
        acquire(store, ticket(("lapsed", n)), wait_ms=1)
    eventually(lambda: store.look(ticket(("lapsed", numbers[-1])), run="")[0] == "none", what="they have lapsed")


def test_one_pass_frees_1000_that_lapsed_among_60000_that_are_held_and_looks_at_no_other(full):
    store, client = store_at(full.url(0)), full.client(0)
    lapse(store, range(LAPSED))
    client.config_resetstat()
    reaped = store.reap(BUCKETS, limit=10 * LAPSED)
    assert {held.digest for held in reaped.lapsed} == {ticket(("lapsed", n)).digest for n in range(LAPSED)}
    assert (reaped.kept, reaped.foreign) == ([], [])
    assert client.info("commandstats")["cmdstat_get"]["calls"] == LAPSED
    assert "cmdstat_scan" not in client.info("commandstats")
    assert "cmdstat_keys" not in client.info("commandstats")
    assert acquire(store, ticket(0, series=2)) == "refused"


def test_a_pass_with_nothing_to_do_reads_no_record(full):
    store, client = store_at(full.url(0)), full.client(0)
    client.config_resetstat()
    assert store.reap(BUCKETS, limit=1000).lapsed == []
    assert "cmdstat_get" not in client.info("commandstats")


@pytest.mark.parametrize("limit", [1, 10, 100, 300])
def test_a_pass_frees_no_more_than_its_limit_and_the_next_ones_the_rest(limit, full):
    store = store_at(full.url(0))
    lapse(store, range(3 * limit))
    passes = [{held.digest for held in store.reap(BUCKETS, limit=limit).lapsed} for _ in range(4)]
    assert [len(freed) for freed in passes] == [limit, limit, limit, 0]
    assert set.union(*passes) == {ticket(("lapsed", n)).digest for n in range(3 * limit)}


def test_a_pass_reaches_its_limit_in_one_bucket_alone(store):
    """Many more lapsed there than one call of the script looks at."""
    mine = [of for of in (ticket(("bucket", n)) for n in range(60_000)) if of.digest.startswith("A")]
    bucket = store.keys.bucket(0)
    mine = [of for of in mine if store.keys.record(of.digest).startswith(bucket)]
    assert len(mine) > 150
    for of in mine:
        acquire(store, of, wait_ms=1)
    eventually(lambda: store.look(mine[-1], run="")[0] == "none", what="they have lapsed")
    assert len(store.reap(BUCKETS, limit=1000).lapsed) == len(mine)


def test_the_setting_limits_what_a_pass_of_the_reaper_frees(clean_redis):
    app = Celery("limited", broker=clean_redis.url(5))
    app.conf.update(once_more_redis_url=clean_redis.url(0), once_more_reap_limit=7)
    store = runtime(app).store
    for n in range(20):
        store.acquire(ticket(n), wait_ms=1)
    eventually(lambda: store.look(ticket(19), run="")[0] == "none", what="they have lapsed")
    assert [reap(app).lapsed for _ in range(4)] == [7, 7, 6, 0]
