"""The lock store in plain Python, written from ``docs/state-table.md`` and from nothing else; the tests hold Redis to it.

One process, no expiry of its own, an injected clock. Tokens are counted 1, 2, 3, …; a real store's only have to grow alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from celery_once_more.locks import PHASES, Answer, Holder, Lapsed, Reaped, Renewal
from celery_once_more.ticket import Ticket


@dataclass
class Held:
    series: int
    task_id: str
    run: str
    phase: str
    until: int
    token: int
    hops: list[int]


@dataclass
class Lock:
    task: str
    holders: list[Held] = field(default_factory=list)


class Model:
    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.locks: dict[str, Lock] = {}
        #: calls that are over, and messages that are spent
        self.memory: set[str] = set()
        self.tokens = 0

    # ---------------------------------------------------------------- the verbs of the store

    def acquire(self, ticket: Ticket, *, wait_ms: int) -> Answer:
        lapsed = self._free_lapsed(ticket)
        own = self._own(ticket)
        if own and own.phase == "W" and own.hops[0] == ticket.hop:
            return Answer(verdict="admitted", lapsed=lapsed)
        in_the_way = [own] if own else self._others(ticket, None, ticket.lock.refuse_publish)
        if own or len(in_the_way) >= ticket.lock.limit:
            return Answer(verdict="refused", holder=self._seen(in_the_way[0]), lapsed=lapsed)
        self._take(ticket, "W", wait_ms)
        return Answer(verdict="admitted", lapsed=lapsed)

    def release(self, ticket: Ticket) -> bool:
        own = self._own(ticket)
        if own is None or own.phase != "W" or own.hops[0] != ticket.hop:
            return False
        self._drop(ticket.digest, own)
        return True

    def start(self, ticket: Ticket, *, run: str, lease_ms: int, redelivered: bool) -> Answer:
        own = self._own(ticket)
        runs = own is not None and own.phase == "R" and own.until > self.clock()
        if runs and own.run == run:
            return Answer(verdict="run", token=own.token)
        known = ticket.admitted or redelivered
        if known and {ticket.done_member, ticket.spent_member} & self.memory:
            return Answer(verdict="done")
        if own and ticket.hop not in own.hops and ticket.hop < own.hops[0]:
            return Answer(verdict="done")
        if runs:
            return Answer(verdict="busy" if known else "conflict", holder=self._seen(own))
        if own is None and not ticket.admitted:
            waiting = [h for h in self._holders(ticket.digest) if h.task_id == ticket.task_id and h.phase == "W"]
            own = waiting[0] if waiting else None
        lapsed = self._free_lapsed(ticket, spare=own)
        phases = ticket.lock.refuse_start if ticket.admitted else ticket.lock.refuse_unadmitted
        in_the_way = self._others(ticket, own, phases)
        if len(in_the_way) >= ticket.lock.limit:
            verdict = "held" if ticket.admitted else "conflict"
            return Answer(verdict=verdict, holder=self._seen(in_the_way[0]), lapsed=lapsed)
        if not known:
            self.memory -= {ticket.done_member, ticket.spent_member}
        if own is None:
            own = self._take(ticket, "W", 0)
        elif own.series != ticket.series:
            own.series, own.hops = ticket.series, [ticket.hop]
        elif own.phase == "R":
            lapsed += (Lapsed(task_id=own.task_id, phase="running", task=ticket.task, digest=ticket.digest),)
        if ticket.hop not in own.hops:
            own.hops.insert(0, ticket.hop)
        self._run(own, run, lease_ms)
        return Answer(verdict="run", token=own.token, lapsed=lapsed)

    def finish(self, ticket: Ticket, *, run: str, only_this_message: bool = False) -> str:
        own = self._own(ticket)
        if own is not None:
            mine = own.run == run if own.phase == "R" else run == ""
            if not mine:
                return "lost"
            self._drop(ticket.digest, own)
        elif only_this_message:
            return "gone"
        self.memory.add(ticket.spent_member if only_this_message else ticket.done_member)
        return "freed" if own is not None else "gone"

    def requeue(self, ticket: Ticket, *, run: str, hop: int, wait_ms: int) -> bool:
        own = self._own(ticket)
        if own is None:
            if {ticket.done_member, ticket.spent_member} & self.memory:
                return False
            own = self._take(ticket, "W", 0)
        elif own.run == run:
            if own.phase == "W" and own.hops[0] >= hop:
                return True
        elif run or own.phase != "W" or ticket.hop not in own.hops:
            return False
        own.phase, own.run, own.until = "W", run, self.clock() + wait_ms
        if hop > own.hops[0]:
            own.hops.insert(0, hop)
        return True

    def confirm(self, ticket: Ticket, *, hop: int, wait_ms: int) -> None:
        own = self._own(ticket)
        if own is None or hop not in own.hops:
            return
        if ticket.hop != hop and ticket.hop in own.hops:
            own.hops.remove(ticket.hop)
            self.memory.add(ticket.spent_member)
        if own.phase == "W":
            own.until = self.clock() + wait_ms

    def renew(self, runs: Sequence[tuple[Ticket, str, bool]], *, lease_ms: int) -> list[Renewal]:
        return [Renewal(verdict=self._renew(ticket, run, retake, lease_ms)) for ticket, run, retake in runs]

    def look(self, ticket: Ticket, *, run: str) -> tuple[str, int, int]:
        own = self._own(ticket)
        if own and own.until > self.clock():
            state = "waiting" if own.phase == "W" else "mine" if own.run == run else "running"
            return state, own.until - self.clock(), own.token
        return "done" if {ticket.done_member, ticket.spent_member} & self.memory else "none", 0, 0

    def reap(self, buckets: Iterable[int], *, limit: int) -> Reaped:
        lapsed = [
            Lapsed(task_id=held.task_id, phase=PHASES[held.phase], task=lock.task, digest=digest)
            for digest, lock in list(self.locks.items())
            for held in self._sweep(digest, None)
        ]
        return Reaped(lapsed=lapsed)

    # ---------------------------------------------------------------- events, not acts

    def lapse(self, digest: str, series: int) -> None:
        for held in self._holders(digest):
            if held.series == series:
                held.until = self.clock() - 1

    def age(self, digest: str, ms: int) -> None:
        for held in self._holders(digest):
            held.until -= ms

    def flush(self) -> None:
        self.locks.clear()
        self.memory.clear()

    def forget(self) -> None:
        """The redelivery window has passed."""
        self.memory.clear()

    # ---------------------------------------------------------------- how

    def _renew(self, ticket: Ticket, run: str, retake: bool, lease_ms: int) -> str:
        own = self._own(ticket)
        if own and own.phase == "R" and own.run == run:
            own.until = self.clock() + lease_ms
            return "renewed"
        if own:
            return "over" if own.phase == "W" else "lost"
        if {ticket.done_member, ticket.spent_member} & self.memory:
            return "over"
        phases = ticket.lock.refuse_start if ticket.admitted else ticket.lock.refuse_unadmitted
        if not retake or len(self._others(ticket, None, phases)) >= ticket.lock.limit:
            return "lost"
        self._run(self._take(ticket, "W", 0), run, lease_ms)
        return "retaken"

    def _holders(self, digest: str) -> list[Held]:
        lock = self.locks.get(digest)
        return lock.holders if lock else []

    def _own(self, ticket: Ticket) -> Held | None:
        return next((h for h in self._holders(ticket.digest) if h.series == ticket.series), None)

    def _others(self, ticket: Ticket, own: Held | None, phases: str) -> list[Held]:
        return [h for h in self._holders(ticket.digest) if h is not own and h.phase in phases]

    def _seen(self, held: Held) -> Holder:
        return Holder(task_id=held.task_id, phase=PHASES[held.phase], remaining_ms=max(0, held.until - self.clock()))

    def _take(self, ticket: Ticket, phase: str, ms: int) -> Held:
        held = Held(ticket.series, ticket.task_id, "", phase, self.clock() + ms, 0, [ticket.hop])
        self.locks.setdefault(ticket.digest, Lock(ticket.task)).holders.append(held)
        return held

    def _run(self, held: Held, run: str, lease_ms: int) -> None:
        self.tokens += 1
        held.run, held.phase, held.until, held.token = run, "R", self.clock() + lease_ms, self.tokens

    def _drop(self, digest: str, held: Held) -> None:
        self.locks[digest].holders.remove(held)
        if not self.locks[digest].holders:
            del self.locks[digest]

    def _sweep(self, digest: str, spare: Held | None) -> list[Held]:
        lapsed = [h for h in self._holders(digest) if h.until <= self.clock() and h is not spare]
        for held in lapsed:
            self._drop(digest, held)
        return lapsed

    def _free_lapsed(self, ticket: Ticket, spare: Held | None = None) -> tuple[Lapsed, ...]:
        return tuple(
            Lapsed(task_id=h.task_id, phase=PHASES[h.phase], task=ticket.task, digest=ticket.digest)
            for h in self._sweep(ticket.digest, spare)
        )
