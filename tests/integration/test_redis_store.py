"""The store on a real Redis: scripts that are gone, values that are not ours, and what it leaves in the database."""

import pytest
from contract.stores import BUCKETS, THROUGH, WAIT_MS, acquire, acts, lease, renew, start, store_at, through, ticket
from support.redis_server import RedisServer
from support.waiting import eventually

from celery_once_more import StoreUnavailable
from celery_once_more.locks.wire import Wire


@pytest.fixture
def store(clean_redis):
    return store_at(clean_redis.url(0))


@pytest.fixture
def client(clean_redis):
    return clean_redis.client(0)


def test_each_act_loads_its_script_again_after_a_script_flush(store, client):
    one = ticket()
    answers = []
    for act in (acts(store, one)[name] for name in ("acquire", "look", "start", "requeue", "confirm", "release", "finish")):
        client.script_flush()
        answers.append(act())
    first, looked, run, requeued, _, released, finished = answers
    assert (first.verdict, looked[0], run.verdict, requeued) == ("admitted", "waiting", "run", True)
    assert (released, finished) == (False, "lost")  # it waits for message 1, and these speak of message 0 and its run


def test_renewals_and_the_reaper_load_their_scripts_again_after_a_script_flush(store, client):
    one, other = ticket(1), ticket(2)
    through(store, other)
    acquire(store, one)
    start(store, one)
    client.script_flush()
    assert [r.verdict for r in store.renew([lease(one), lease(other)])] == [
        "renewed",
        "over",
    ]
    client.script_flush()
    assert store.reap(BUCKETS, limit=10).lapsed == []


def has_lapsed(store, of):
    """A millisecond may be longer than the way to the next act."""
    eventually(lambda: store.look(of, run="")[0] == "none", what="it has lapsed")


def test_what_was_reaped_before_the_scripts_were_flushed_is_reported_too(store, client, monkeypatch):
    """``SCRIPT FLUSH`` in the middle of a pass: only what was not answered is asked again."""
    locks = [ticket(n) for n in range(60)]
    for lock in locks:
        acquire(store, lock, wait_ms=1)
    has_lapsed(store, locks[-1])
    whole = Wire.send_many

    def flushed_half_way(self, commands):
        monkeypatch.setattr(Wire, "send_many", whole)
        half = len(commands) // 2
        first = whole(self, commands[:half])
        client.script_flush()
        return first + whole(self, commands[half:])

    monkeypatch.setattr(Wire, "send_many", flushed_half_way)
    assert sorted(h.digest for h in store.reap(BUCKETS, limit=1000).lapsed) == sorted(lock.digest for lock in locks)


def test_a_restarted_server_is_used_again_and_knows_no_script():
    server = RedisServer().start()
    try:
        store = store_at(server.url(0))
        assert through(store, ticket()) == THROUGH
        server.kill()
        server.start()
        assert through(store, ticket(series=2)) == THROUGH
        assert renew(store, ticket()) == "lost"  # the pipeline's own connection
    finally:
        server.stop()


PACK = "redis.call('SET', KEYS[1], cmsgpack.pack(%s))"
FOREIGN = {
    "text": lambda client, key: client.set(key, "hello"),
    "empty text": lambda client, key: client.set(key, ""),
    "long text": lambda client, key: client.set(key, "x" * 100_000),
    "a list": lambda client, key: client.rpush(key, "a"),
    "a hash": lambda client, key: client.hset(key, "a", "b"),
    "a number": lambda client, key: client.eval(PACK % "5", 1, key),
    "a record without holders": lambda client, key: client.eval(PACK % "{'a text'}", 1, key),
    "a map": lambda client, key: client.eval(PACK % "{a = 1}", 1, key),
    "texts": lambda client, key: client.eval(PACK % "{'a', 'b'}", 1, key),
    "a holder without a phase": lambda client, key: client.eval(PACK % "{'t', {1, 'id', '', false, 1, 0, 0, {0}}}", 1, key),
    "a holder without messages": lambda client, key: client.eval(PACK % "{'t', {1, 'id', '', 'W', 1, 0, 0, {}}}", 1, key),
    "a phase of a later version": lambda client, key: client.eval(PACK % "{'t', {1, 'id', '', 'X', 1, 0, 0, {0}}}", 1, key),
    "a holder of another shape": lambda client, key: client.eval(PACK % "{'t', {'id', 1, 2, 3, 4, 5, 6, {0}}}", 1, key),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_value_that_is_not_ours_is_an_outage_to_every_act_and_stays_as_it_is(kind, store, client):
    one = ticket()
    key = store.keys.record(one.digest)
    FOREIGN[kind](client, key)
    before = client.dump(key) if kind != "text" else client.get(key)
    for name, act in {**acts(store, one), "renew": lambda: renew(store, one)}.items():
        with pytest.raises(StoreUnavailable) as caught:
            act()
        assert "FOREIGN" in str(caught.value) or "WRONGTYPE" in str(caught.value), name
        assert caught.value.__cause__ is not None, name
    assert (client.dump(key) if kind != "text" else client.get(key)) == before
    assert client.keys("*") == [key]


@pytest.mark.parametrize("kind", FOREIGN)
def test_the_reaper_reports_a_value_that_is_not_ours_and_goes_on(kind, store, client):
    lapsed = [ticket(n) for n in range(40)]
    for lock in lapsed:
        acquire(store, lock, wait_ms=1)
    has_lapsed(store, lapsed[-1])
    one = ticket("foreign")
    key = store.keys.record(one.digest)
    FOREIGN[kind](client, key)
    client.zadd(store.keys.due(one.digest), {one.digest: 1})
    reaped = store.reap(BUCKETS, limit=100)
    assert (reaped.foreign, len(reaped.lapsed)) == ([one.digest], len(lapsed))
    assert client.exists(key)
    assert store.reap(BUCKETS, limit=100).foreign == []  # put off, and not in the way of the next pass


def test_the_reaper_takes_an_entry_without_a_record_out_of_the_index(store, client):
    one = ticket()
    acquire(store, one)
    client.delete(store.keys.record(one.digest))
    client.zadd(store.keys.due(one.digest), {one.digest: 1})
    assert store.reap(BUCKETS, limit=10).lapsed == []
    assert client.keys("*") == []


def test_the_reaper_corrects_an_entry_that_is_too_early(store, client):
    one = ticket()
    acquire(store, one)
    due = store.keys.due(one.digest)
    right = client.zscore(due, one.digest)
    client.zadd(due, {one.digest: 1})
    assert len(store.reap(BUCKETS, limit=10).kept) == 1
    assert client.zscore(due, one.digest) == right


def test_a_lock_that_is_free_leaves_nothing_but_its_token_and_the_memory_of_its_end(store, client):
    locks = [ticket(n) for n in range(50)]
    for n, lock in enumerate(locks):
        acquire(store, lock)
        if n % 3 == 0:
            store.release(lock)
        else:
            start(store, lock)
            store.finish(lock, run="run")
    kinds = {key.split("}:")[1].split(":")[0] for key in client.keys("*")}
    assert kinds == {"token", "done"}


def test_no_key_is_without_an_end_but_tokens_and_the_index(store, client):
    for n in range(200):
        one = ticket(n)
        acquire(store, one)
        if n % 2:
            start(store, one)
            store.requeue(one, run="run", hop=1, wait_ms=WAIT_MS)
            store.confirm(one, hop=1, wait_ms=WAIT_MS)
        if n % 4 > 1:
            start(store, one.at_hop(1), run="next")
            store.finish(one.at_hop(1), run="next")
    endless = {key.split("}:")[1].split(":")[0] for key in client.keys("*") if client.ttl(key) < 0}
    assert endless == {"token", "due"}


def test_two_prefixes_are_two_stores(clean_redis):
    one = ticket()
    first, second = store_at(clean_redis.url(0)), store_at(clean_redis.url(0))
    second.keys.prefix = "others"
    assert (acquire(first, one), acquire(second, ticket(series=2))) == ("admitted", "admitted")


def test_all_keys_of_one_lock_share_one_slot_and_locks_spread_over_many(store, clean_redis):
    """What Redis Cluster needs, seen in the names of the keys."""
    client = clean_redis.client(0)
    tags = set()
    for n in range(400):
        one = ticket(n)
        client.flushdb()
        acquire(store, one)
        start(store, one)
        store.requeue(one, run="run", hop=1, wait_ms=WAIT_MS)
        store.confirm(one, hop=1, wait_ms=WAIT_MS)
        mine = {key.split("{")[1].split("}")[0] for key in client.keys("*")}
        assert len(mine) == 1
        tags |= mine
    assert len(tags) > 150


def test_answers_are_read_alike_with_decoded_responses(clean_redis):
    store = store_at(clean_redis.url(0), decode_responses=True)
    one, other = ticket(), ticket(series=2)
    assert acquire(store, one) == "admitted"
    assert store.acquire(other, wait_ms=WAIT_MS).holder.task_id == one.task_id
    assert start(store, one) == "run"
    assert store.look(one, run="run")[0] == "mine"
    assert (renew(store, one), store.finish(one, run="run")) == ("renewed", "freed")
    acquire(store, ticket("lapsed"), wait_ms=1)
    has_lapsed(store, ticket("lapsed"))
    assert [h.task_id for h in store.reap(BUCKETS, limit=10).lapsed] == ["id-lapsed-1"]


@pytest.mark.parametrize("text", ["täsk.π", "日本語", "a b\r\nc", "x" * 10_000])
def test_a_task_id_of_any_text_comes_back_as_it_was(text, store):
    assert acquire(store, ticket(task_id=text, task=f"shop.{text}")) == "admitted"
    assert store.acquire(ticket(series=2), wait_ms=WAIT_MS).holder.task_id == text


def test_a_task_id_that_cannot_be_encoded_hinders_nobody(store):
    """A lone surrogate passes through JSON, so a message by name can bring one; other leases in the same beat are renewed."""
    strange, other = ticket("strange", task_id="\udcff", admitted=False), ticket("other")
    acquire(store, other)
    assert (start(store, strange), start(store, other)) == ("run", "run")
    assert [r.verdict for r in store.renew([lease(of) for of in (strange, other)])] == ["renewed"] * 2
    assert store.finish(strange, run="run") == "freed"
