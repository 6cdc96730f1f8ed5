"""The lock store on Redis (6.2 or later) or Valkey: one Lua script per act, each atomic, all on the server's clock.

A record is found by its digest, an index of deadlines by bucket and shard (``keys.py``); the scripts stand in ``lua/``.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import redis
from redis.exceptions import RedisError

from celery_once_more.exceptions import StoreUnavailable
from celery_once_more.locks import PHASES, Answer, Held, Holder, Lapsed, Place, Reaped, Renew, Renewal, Suspects, Waiting
from celery_once_more.locks.keys import BUCKETS, Keys
from celery_once_more.locks.scripts import Arguments, script
from celery_once_more.locks.suspects import RedisSuspects
from celery_once_more.locks.wire import Wire
from celery_once_more.ticket import Ticket

T = TypeVar("T")
#: entries that one call of the reap script looks at, which keeps it under two milliseconds of the server's time
REAP_BATCH = 100
#: calls of it in one pipeline
REAP_BUCKETS = 32


class RedisStore:
    """Implements :class:`~celery_once_more.locks.LockStore`. One client, so one pool, per process: a fork makes its own."""

    def __init__(self, make_client: Callable[[], redis.Redis], *, prefix: str, window_ms: int) -> None:
        self._make_client = make_client
        self._wires: dict[int, Wire] = {}
        self.keys = Keys(prefix)
        self.window_ms = window_ms
        self.suspects: Suspects = RedisSuspects(self._run, self.keys.looks())

    @property
    def wire(self) -> Wire:
        pid = os.getpid()
        try:
            return self._wires[pid]
        except KeyError:
            # setdefault, and no lock: a lock held by another thread while this process was forked would never open
            return self._wires.setdefault(pid, Wire(self._make_client()))

    @property
    def client(self) -> redis.Redis:
        """redis-py's client over the same pool, for whoever wants to look at the records."""
        return self.wire.client

    def acquire(self, ticket: Ticket, *, wait_ms: int, period_ms: int = 0, place: Place | None = None) -> Answer:
        lock = ticket.lock
        argv = (*_identity(ticket), lock.limit, lock.refuse_publish, wait_ms, period_ms, *_place(place))
        return _answer(ticket, self._run("acquire", self._indexed(ticket), argv))

    def release(self, ticket: Ticket) -> bool:
        argv = (ticket.digest, ticket.series, ticket.hop)
        return bool(self._run("release", self._indexed(ticket), argv))

    def start(self, ticket: Ticket, *, run: str, lease_ms: int, redelivered: bool, period_ms: int = 0) -> Answer:
        argv = (*_identity(ticket), ticket.lock.limit, _refuse_start(ticket), run, lease_ms,
                ticket.done_member, ticket.spent_member, int(ticket.known), int(redelivered),
                "conflict" if ticket.meets_strategy(redelivered=redelivered) else "held", ticket.stop, period_ms)  # fmt: skip
        keys = (*self._indexed(ticket), self.keys.token(ticket.digest), *self.keys.done(ticket.digest))
        return _answer(ticket, self._run("start", keys, argv))

    def finish(self, ticket: Ticket, *, run: str, only_this_message: bool = False) -> str:
        over = ticket.spent_member if only_this_message else ticket.done_member
        argv = (ticket.digest, ticket.series, run, over, self.window_ms, int(only_this_message))
        sent_again: list[Exception] = []
        verdict = _text(self._run("finish", self._remembering(ticket), argv, on_failure=sent_again.append))
        if verdict != "over":
            return verdict
        return "freed" if sent_again else "gone"  # by this very act, whose reply was lost; else another run of the call ended

    def requeue(self, ticket: Ticket, *, run: str | None, hop: int, wait_ms: int, place: Place | None = None) -> bool:
        argv = (*_identity(ticket), run or "", hop, wait_ms, ticket.done_member, ticket.spent_member, ticket.stop, *_place(place))
        return _text(self._run("requeue", self._remembering(ticket), argv)) == "kept"

    def confirm(self, ticket: Ticket, *, hop: int, wait_ms: int) -> None:
        argv = (ticket.digest, ticket.series, ticket.hop, hop, wait_ms, ticket.spent_member, self.window_ms)
        self._run("confirm", self._remembering(ticket), argv)

    def renew(self, leases: Sequence[Renew]) -> list[Renewal]:
        if not leases:
            return []
        calls: list[tuple[Sequence[str], Arguments]] = []
        for lease in leases:
            ticket = lease.ticket
            keys = (*self._indexed(ticket), self.keys.token(ticket.digest), *self.keys.done(ticket.digest))
            argv = (*_identity(ticket), ticket.lock.limit, _refuse_start(ticket), lease.run, lease.lease_ms,
                    ticket.done_member, ticket.spent_member, int(lease.retake), ticket.stop)  # fmt: skip
            calls.append((keys, argv))
        answers = self._run_many("renew", calls)
        refusals = [answer for answer in answers if isinstance(answer, Exception)]
        if len(refusals) == len(answers):  # not this or that record: the server
            raise _unavailable("renew", refusals[0]) from refusals[0]
        return [Renewal(verdict="unknown" if isinstance(a, Exception) else _text(a)) for a in answers]

    def look(self, ticket: Ticket, *, run: str) -> tuple[str, int, int]:
        keys = (self.keys.record(ticket.digest), *self.keys.done(ticket.digest))
        argv = (ticket.series, run, ticket.done_member, ticket.spent_member)
        state, remaining_ms, token = self._run("look", keys, argv)
        return _text(state), remaining_ms, token

    def holder(self, ticket: Ticket) -> Held | None:
        argv = (ticket.lock.refuse_publish, ticket.lock.refuse_start)
        found = self._run("holder", (self.keys.record(ticket.digest),), argv)
        if not found:
            return None
        series, task_id, run, phase, remaining_ms, since, token, hop = found
        return Held(digest=ticket.digest, series=series, task_id=_text(task_id), run=_text(run), phase=PHASES[_text(phase)],
                    remaining_ms=remaining_ms, since=since, token=token, hop=hop)  # fmt: skip

    def free(self, held: Held) -> bool:
        keys = (self.keys.record(held.digest), self.keys.due(held.digest))
        argv = (held.digest, held.series, held.phase[0].upper(), held.run, held.hop)
        return bool(self._run("free", keys, argv))

    def reap(self, buckets: Iterable[int], *, limit: int) -> Reaped:
        lapsed: list[Lapsed] = []
        foreign: list[str] = []
        kept: list[str] = []
        todo = deque(buckets)
        while todo and len(lapsed) < limit:
            room = limit - len(lapsed)
            chunk = [todo.popleft() for _ in range(min(len(todo), room, REAP_BUCKETS))]
            batch = min(REAP_BATCH, room // len(chunk))
            calls = [(self.keys.due_of_bucket(bucket), (self.keys.bucket(bucket), batch)) for bucket in chunk]
            for bucket, (freed, unread, still) in zip(chunk, self._each("reap", calls), strict=True):
                lapsed += [_lapsed(task, digest, task_id, phase) for digest, task, task_id, phase in freed]
                foreign += map(_text, unread)
                kept += map(_text, still)
                if len(freed) + len(unread) + len(still) >= batch:
                    todo.append(bucket)  # there may be more
        return Reaped(lapsed=lapsed, foreign=foreign, kept=kept)

    def waiting(self, *, limit: int) -> list[Waiting]:
        found: list[Waiting] = []
        todo, first = deque(range(BUCKETS)), random.randrange(BUCKETS)
        todo.rotate(first)
        while todo and limit > 0:
            chunk = [todo.popleft() for _ in range(min(len(todo), limit, REAP_BUCKETS))]
            batch = min(REAP_BATCH, limit // len(chunk))
            calls = [
                (self.keys.due_of_bucket(bucket), (self.keys.bucket(bucket), batch, random.randrange(1000))) for bucket in chunk
            ]
            for holders, looked_at in self._each("waiting", calls):
                found += [Waiting(digest=_text(digest), series=series, hop=hop, task_id=_text(task_id), task=_text(task),
                                  place=_text(place)) for digest, series, hop, task_id, task, place in holders]  # fmt: skip
                limit -= looked_at
        return found

    def release_all(self, waiting: Sequence[Waiting]) -> list[Waiting]:
        calls = [((self.keys.record(w.digest), self.keys.due(w.digest)), (w.digest, w.series, w.hop)) for w in waiting]
        return [w for w, freed in zip(waiting, self._each("release", calls), strict=True) if freed]

    def _each(self, act: str, calls: Sequence[tuple[Sequence[str], Arguments]]) -> list[Any]:
        """The answers to all of them; one refusal is an outage."""
        answers = self._run_many(act, calls)
        for answer in answers:
            if isinstance(answer, Exception):
                raise _unavailable(act, answer) from answer
        return answers

    def _run(self, act: str, keys: Sequence[str], argv: Arguments, **how: Any) -> Any:
        try:
            return script(act).run(self.wire, keys, argv, **how)
        except (RedisError, OSError) as exc:
            raise _unavailable(act, exc) from exc

    def _run_many(self, act: str, calls: Sequence[tuple[Sequence[str], Arguments]]) -> list[Any]:
        try:
            return script(act).run_many(self.wire, calls)
        except (RedisError, OSError) as exc:
            raise _unavailable(act, exc) from exc

    def _indexed(self, ticket: Ticket) -> tuple[str, str]:
        return self.keys.record(ticket.digest), self.keys.due(ticket.digest)

    def _remembering(self, ticket: Ticket) -> tuple[str, ...]:
        return (*self._indexed(ticket), *self.keys.done(ticket.digest))


def _unavailable(act: str, exc: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"{act}: {type(exc).__name__}: {exc}")


def _identity(ticket: Ticket) -> tuple[str, str, int, str, int]:
    return ticket.digest, ticket.task, ticket.series, ticket.task_id, ticket.hop


def _place(place: Place | None) -> tuple[str, int]:
    return (place.name, place.eta_ms) if place is not None else ("", 0)


def _refuse_start(ticket: Ticket) -> str:
    return ticket.lock.refuse_start if ticket.admitted else ticket.lock.refuse_unadmitted


def _lapsed(task: bytes | str, digest: bytes | str, task_id: bytes | str, phase: bytes | str) -> Lapsed:
    return Lapsed(task=_text(task), digest=_text(digest), task_id=_text(task_id), phase=PHASES[_text(phase)])


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


def _answer(ticket: Ticket, raw: list[Any]) -> Answer:
    verdict = _text(raw[0])
    lapsed = tuple(_lapsed(ticket.task, ticket.digest, task_id, phase) for task_id, phase in raw[1])
    if verdict == "run":
        return Answer(verdict=verdict, token=raw[2], lapsed=lapsed)
    if verdict == "admitted":
        return Answer(verdict=verdict, stop=raw[2], lapsed=lapsed)
    if len(raw) > 2:
        holder = Holder(task_id=_text(raw[2]), phase=PHASES[_text(raw[3])], remaining_ms=max(0, raw[4]))
        return Answer(verdict=verdict, holder=holder, lapsed=lapsed)
    return Answer(verdict=verdict, lapsed=lapsed)
