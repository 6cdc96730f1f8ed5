"""A real store and its model, driven in step: after each act both must have answered the same and be in the same state.

What is compared is everything that the store keeps for one digest: the decoded record, its place in the index of deadlines,
its expiry, and the memory of what is over. Only what depends on the clock is compared with a tolerance, which is far smaller
than the difference between any two durations used here; tokens are compared by their order.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode
from dataclasses import replace

from contract.model import Held, Model

from celery_once_more.locks import Held as Seen
from celery_once_more.locks import Renew
from celery_once_more.locks.redis import RedisStore
from celery_once_more.ticket import Ticket

#: milliseconds; every duration is an odd multiple of 50 s and every age an even one, so that none of them meets another,
#: and no deadline comes nearer to now than 50 s
LEASE, WAIT, HANDOVER, WINDOW = 1_050_000, 9_050_000, 350_000, 90_000_000
#: of a lock with a period; some of them end before the message has started
PERIOD = 1_650_000
AGES = (100_000, 400_000, 1_100_000)
TOLERANCE = 30_000
FORGET_AFTER = 3_600_000
#: seconds until a server that does not answer is an error; a busy machine may take its time
PATIENCE = 60
PREFIX = "twins"

#: one line of text, which is quick to read: now; ms to live; index score; task; holders; what is over
INSPECT = """
local clock, held, task = redis.call('TIME'), {}, ''
local raw = redis.call('GET', KEYS[1])
if raw then
  local rec = cmsgpack.unpack(raw)
  task = rec[1]
  for i = 2, #rec do
    local h = rec[i]
    held[i - 1] = string.format('%.0f,%s,%s,%s,%.0f,%.0f,%s,%.0f', h[1], h[2], h[3], h[4], h[5], math.max(h[7], 0),
      table.concat(h[8], '.'), h[6])
  end
end
local over = table.concat(redis.call('SUNION', KEYS[3], KEYS[4]), ',')
local score = redis.call('ZSCORE', KEYS[2], ARGV[1]) or ''
local now = clock[1] .. string.format('%03d', math.floor(clock[2] / 1000))
return table.concat({now, redis.call('PTTL', KEYS[1]), score, task, table.concat(held, ' '), over}, ';')
"""
#: the deadline of every holder, or of one series, moves: production scripts take no time, so the test rewrites the record
SHIFT = """
local raw = redis.call('GET', KEYS[1])
if not raw then return 0 end
local rec, clock = cmsgpack.unpack(raw), redis.call('TIME')
local past, first, last = clock[1] * 1000 + math.floor(clock[2] / 1000) - 1, nil, 0
for i = 2, #rec do
  local h = rec[i]
  if ARGV[2] == '' then
    h[5], h[6] = h[5] - ARGV[3], h[6] > 0 and h[6] - ARGV[3] or 0
  elseif string.format('%.0f', h[1]) == ARGV[2] then
    h[5] = past
  end
  first, last = math.min(first or h[5], h[5]), math.max(last, h[5])
end
redis.call('SET', KEYS[1], cmsgpack.pack(rec), 'PXAT', string.format('%.0f', math.max(last, past) + 3600000))
redis.call('ZADD', KEYS[2], string.format('%.0f', first), ARGV[1])
return 1
"""


def as_seen(ticket: Ticket, *, run: str, phase: str) -> Seen:
    """A holder, as whoever wants to free it has seen it."""
    return Seen(digest=ticket.digest, series=ticket.series, task_id=ticket.task_id, hop=ticket.hop, since=0, token=0,
                run=run, phase=phase)  # fmt: skip


def wall_ms() -> int:
    return int(time.time() * 1000)


class Twins:
    def __init__(self, server, digest: str) -> None:
        self.client = server.client(0, socket_timeout=PATIENCE)
        self.store = RedisStore(lambda: server.client(0, socket_timeout=PATIENCE), prefix=PREFIX, window_ms=WINDOW)
        self.model = Model(wall_ms)
        self.digest = digest
        self.bucket = urlsafe_b64decode(digest[:4])[0]
        keys = self.store.keys
        self.keys = (keys.record(digest), keys.due(digest), *keys.done(digest))
        self._inspect = self.client.register_script(INSPECT)
        self._shift = self.client.register_script(SHIFT)
        #: the model's tokens -> the store's
        self.tokens: dict[int, int] = {0: 0}
        #: one line for each thing that happened, to be read when something is wrong
        self.log: list[str] = []
        self.before: list[Held] = []

    def clear(self) -> None:
        """Back to an empty store; the tokens are forgotten too."""
        self.client.flushdb()
        self.model = Model(wall_ms)
        self.tokens, self.log, self.before = {0: 0}, [], []

    def do(self, verb: str, ticket: Ticket, *, compare: bool = True, **how):
        """One act on both; what both answered."""
        self.before = [replace(held, hops=[*held.hops]) for held in self.holders]
        if verb == "renew":
            asked = [Renew(ticket=ticket, run=how["run"], lease_ms=LEASE, retake=how["retake"])]
            said, real = (s.renew(asked)[0].verdict for s in (self.model, self.store))
        elif verb == "free":
            said, real = (s.free(as_seen(ticket, **how)) for s in (self.model, self.store))
        elif verb == "reap":
            said, real = (s.reap([self.bucket], limit=100) for s in (self.model, self.store))
        else:
            said, real = (getattr(s, verb)(ticket, **how) for s in (self.model, self.store))
        self.log.append(
            f"{verb} {ticket.task_id}/{ticket.series}:{ticket.hop}{'' if ticket.known else ' bare'} {how or ''} -> {real}"
        )
        self._same_answer(said, real)
        if compare:
            self.compare()
        return real

    def lapse(self, series: int) -> None:
        self.log.append(f"lapse of series {series}")
        self._shift(self.keys[:2], (self.digest, series, 0))
        self.model.lapse(self.digest, series)
        self.compare()

    def age(self, ms: int) -> None:
        self.log.append(f"{ms} ms pass")
        self._shift(self.keys[:2], (self.digest, "", ms))
        self.model.age(self.digest, ms)
        self.compare()

    def flush(self) -> None:
        self.log.append("flush")
        self.client.flushdb()
        self.model.flush()
        self.compare()

    def forget(self) -> None:
        self.log.append("the redelivery window passes")
        self.client.delete(*self.keys[2:])
        self.model.forget()
        self.compare()

    @property
    def holders(self) -> list[Held]:
        return self.model._holders(self.digest)

    def compare(self) -> None:
        now, ttl, score, task, held, over = self._inspect(self.keys, (self.digest,)).split(";")
        now, ttl = int(now), int(ttl)
        real = [_held(text.split(","), now) for text in held.split()]
        clock = self.model.clock()
        model = [replace(h, until=h.until - clock, stop=h.stop and h.stop - clock) for h in self.holders]
        assert [_timeless(h) for h in real] == [_timeless(h) for h in model], self.story("the records differ")
        for a, b in zip(real, model, strict=True):
            assert abs(a.until - b.until) < TOLERANCE, self.story(f"deadlines differ: {a}, {b}")
            assert abs(a.stop - b.stop) < TOLERANCE, self.story(f"periods differ: {a}, {b}")
            self._same_token(b.token, a.token)
        assert set(filter(None, over.split(","))) == self.model.memory, self.story("what is remembered as over differs")
        if real:
            assert task == self.model.locks[self.digest].task, self.story("the task's name differs")
            assert int(float(score)) - now == min(h.until for h in real), self.story("the index has another deadline")
            last = max(h.until for h in real)
            if last > 0:
                assert abs(ttl - last - FORGET_AFTER) < TOLERANCE, self.story(f"the record expires in {ttl} ms")
            else:
                assert 0 < ttl < FORGET_AFTER + TOLERANCE, self.story(f"the lapsed record expires in {ttl} ms")
        else:
            assert (score, ttl) == ("", -2), self.story("something is left of a lock that nobody holds")

    def story(self, what: str) -> str:
        return "\n".join([what, *self.log[-60:]])

    def _same_answer(self, said, real) -> None:
        if hasattr(said, "verdict"):
            assert (said.token is None) == (real.token is None), self.story(f"answers differ: {said}, {real}")
            if said.token is not None:
                self._same_token(said.token, real.token)
            if said.holder is not None and real.holder is not None:
                assert abs(said.holder.remaining_ms - real.holder.remaining_ms) < TOLERANCE, self.story(f"{said}, {real}")
        elif isinstance(said, tuple):
            assert abs(said[1] - real[1]) < TOLERANCE, self.story(f"answers differ: {said}, {real}")
            assert self.tokens.get(said[2]) == real[2], self.story(f"answers differ: {said}, {real}")
        assert _plain(said) == _plain(real), self.story(f"answers differ: {said}, {real}")

    def _same_token(self, model: int, real: int) -> None:
        """Tokens only grow: a new one is larger than every one before it."""
        if model not in self.tokens:
            assert real > max(self.tokens.values()), self.story(f"token {real} is not larger than all before it")
            self.tokens[model] = real
        assert self.tokens[model] == real, self.story(f"token {real}, expected {self.tokens[model]}")


def _held(text: list[str], now: int) -> Held:
    series, task_id, run, phase, until, token, hops, stop = text
    good = [int(hop) for hop in hops.split(".")]
    return Held(int(series), task_id, run, phase, int(until) - now, int(token), good, int(stop) and int(stop) - now)


def _timeless(held: Held) -> tuple:
    return held.series, held.task_id, held.run, held.phase, held.hops


def _plain(answer):
    """Without what depends on the clock, and in an order of its own."""
    if hasattr(answer, "verdict"):
        holder = answer.holder and (answer.holder.task_id, answer.holder.phase)
        return answer.verdict, holder, sorted(map(str, answer.lapsed))
    if hasattr(answer, "lapsed"):
        return sorted(map(str, answer.lapsed)), sorted(answer.foreign), len(answer.kept)
    return answer[0] if isinstance(answer, tuple) else answer
