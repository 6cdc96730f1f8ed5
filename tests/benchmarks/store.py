"""What the acts of the lock store cost in time and memory, beside one bare ``SET NX PX`` of redis-py."""

import itertools
import os
import time
from base64 import urlsafe_b64encode
from dataclasses import replace
from functools import partial
from uuid import uuid4

import redis
from measure import Row, commands, interleaved

from celery_once_more.lock_types import LOCK_TYPES
from celery_once_more.locks import Place, Renew
from celery_once_more.locks.keys import BUCKETS
from celery_once_more.locks.redis import RedisStore
from celery_once_more.locks.scripts import script
from celery_once_more.locks.wire import pack
from celery_once_more.ticket import Ticket, new_run_id, new_series

DAY_MS, LEASE_MS = 24 * 3600 * 1000, 60 * 1000
FEW = 100_000
SOMEWHERE = Place(name="0000celery")
TASK = "shop.tasks.settle_payment"  # 25 characters


def a_ticket():
    digest = urlsafe_b64encode(os.urandom(16))[:22].decode()
    return Ticket(task=TASK, task_id=str(uuid4()), digest=digest, lock=LOCK_TYPES["until_executed"],
                  series=new_series(), hop=0, queue="celery")  # fmt: skip


def timed(server, store, rounds):
    bare = redis.Redis.from_url(server.url(3))

    def waiting(n):
        tickets = [a_ticket() for _ in range(n)]
        for ticket in tickets:
            store.acquire(ticket, wait_ms=DAY_MS)
        return tickets

    def running(n):
        runs = [(ticket, new_run_id()) for ticket in waiting(n)]
        for ticket, run in runs:
            start(ticket, run)
        return runs

    def start(ticket, run):
        assert store.start(ticket, run=run, lease_ms=LEASE_MS, redelivered=False).verdict == "run"

    def two_trips(ticket, run):
        start(ticket, run)
        store.finish(ticket, run=run)

    contenders = {
        "set": lambda n: [partial(bare.set, f"lock:{t.digest}", t.task_id, nx=True, px=LEASE_MS)
                          for t in (a_ticket() for _ in range(n))],
        "acquire": lambda n: [partial(store.acquire, a_ticket(), wait_ms=DAY_MS) for _ in range(n)],
        "refused": lambda n: [partial(store.acquire, replace(t, series=t.series ^ 1), wait_ms=DAY_MS) for t in waiting(n)],
        "start": lambda n: [partial(start, ticket, new_run_id()) for ticket in waiting(n)],
        "renew": lambda n: [partial(store.renew, [Renew(ticket=t, run=run, lease_ms=LEASE_MS)]) for t, run in running(n)],
        "finish": lambda n: [partial(store.finish, t, run=run) for t, run in running(n)],
        "run": lambda n: [partial(two_trips, ticket, new_run_id()) for ticket in waiting(n)],
    }  # fmt: skip
    interleaved(contenders, rounds=5)
    measured = interleaved(contenders, rounds=rounds)
    acts = ("acquire", "refused", "start", "renew", "finish")
    return [
        measured.row("a run's two trips (start, finish), over one bare SET NX PX", "run", "set", 2.7),
        *(measured.row(f"{act}, over the same SET", act, "set") for act in acts),
        Row(what="of these, in the server", figure=", ".join(_server_times(server, contenders, ("set", *acts)))),
    ]


def _server_times(server, contenders, names):
    client = server.client(0)
    for name in names:
        acts = contenders[name](300)
        asked = commands(client, lambda acts=acts: [act() for act in acts])
        yield f"{name} {asked['set' if name == 'set' else 'evalsha'][1]:.0f} µs"


class Recorder(RedisStore):
    """Notes the calls that a store would make, so that many can be sent at once."""

    def __init__(self, answer):
        super().__init__(lambda: None, prefix="once-more", window_ms=LEASE_MS)
        self.calls, self.answer = [], answer

    def _run(self, act, keys, argv):
        self.calls.append((keys, argv))
        return self.answer


def many(client, act, answer, calls):
    """Do ``act`` for each (ticket, options) in pipelines of 1,000."""
    calls = iter(calls)
    while batch := list(itertools.islice(calls, 1000)):
        recorder = Recorder(answer)
        for ticket, options in batch:
            getattr(recorder, act)(ticket, **options)
        answers = _at_once(client, script(act), recorder.calls)
        assert all(got[0] == answer[0] for got in answers), answers


def _at_once(client, act, calls):
    client.script_load(act.text)
    packed = [pack(("EVALSHA", act.sha, len(keys), *keys, *argv)) for keys, argv in calls]
    connection = client.connection_pool.get_connection()
    connection.send_packed_command(packed)
    answers = [connection.read_response() for _ in packed]
    client.connection_pool.release(connection)
    return answers


def hold(client, n, *, wait_ms=DAY_MS, place=SOMEWHERE):
    tickets = [a_ticket() for _ in range(n)]
    many(client, "acquire", [b"admitted", [], 0], ((ticket, {"wait_ms": wait_ms, "place": place}) for ticket in tickets))
    return tickets


def memory(server, n):
    client = redis.Redis.from_url(server.url(2))
    client.flushall()
    empty = client.info("memory")["used_memory"]
    tickets = hold(client, n)
    waiting = (client.info("memory")["used_memory"] - empty) / n
    options = ({"run": new_run_id(), "lease_ms": DAY_MS, "redelivered": False} for _ in range(n))
    many(client, "start", [b"run", [], 1], zip(tickets, options, strict=True))
    running = (client.info("memory")["used_memory"] - empty) / n
    few = n < FEW  # and an index of 16,384 parts has hardly an entry in each
    return [
        Row(what=what, figure=f"{figure:.0f}", target="" if few else "≤ 320", met=None if few else figure <= 320)
        for what, figure in (
            (f"bytes per held lock with its index ({n:,} locks, all waiting)", waiting),
            ("the same, all running", running),
        )
    ]


def reaping(server, store, held, lapsed):
    client = redis.Redis.from_url(server.url(2))
    client.flushall()
    hold(client, held)
    store.reap(range(BUCKETS), limit=lapsed)  # loads the script
    idle = _pass(server, store, 0)
    dead = hold(client, lapsed, wait_ms=1)
    time.sleep(0.05)  # their millisecond has to pass
    full = _pass(server, store, len(dead))
    return [
        Row(what=f"reap, an idle pass over {held:,} held locks", figure=idle[0]),
        Row(what=f"reap of {lapsed:,} lapsed among {held:,} held", figure=full[0], target="no script over 5 ms", met=full[1] < 5),
    ]


def _pass(server, store, expected):
    """What one pass took, in words; and its longest script, in ms."""
    client = server.client(0)
    client.config_set("slowlog-log-slower-than", 0)
    client.config_set("slowlog-max-len", 10 * BUCKETS)
    client.slowlog_reset()
    wall = []

    def reap():
        begin = time.perf_counter()
        reaped = store.reap(range(BUCKETS), limit=1000)
        wall.append(time.perf_counter() - begin)
        assert len(reaped.lapsed) == expected, reaped

    calls, us = commands(client, reap)["evalsha"]
    longest = max(entry["duration"] for entry in client.slowlog_get(10 * BUCKETS) if "EVALSHA" in str(entry["command"]))
    client.config_set("slowlog-log-slower-than", 10000)
    inside = f"{calls * us / 1e3:.0f} ms of them in the server"
    return f"{wall[0] * 1e3:.0f} ms, {inside}; {calls} scripts, the longest {longest / 1e3:.1f} ms", longest / 1e3
