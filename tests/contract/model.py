"""The lock store in plain Python, written from ``docs/state-table.md`` and from nothing else; the tests hold Redis to it.

One process, no expiry of its own, an injected clock. Tokens are counted 1, 2, 3, …; a real store's only have to grow alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from celery_once_more.locks import PHASES, Answer, Holder, Lapsed, Reaped, Renew, Renewal
from celery_once_more.locks import Held as Seen
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
    #: end of its period, on the clock; 0: it has none
    stop: int = 0


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

    def acquire(self, ticket: Ticket, *, wait_ms: int, period_ms: int = 0) -> Answer:
        lapsed = self._free_lapsed(ticket)
        own = self._own(ticket)
        if own and own.phase == "W" and own.hops[0] == ticket.hop:
            return Answer(verdict="admitted", lapsed=lapsed, stop=own.stop)
        held = [h for h in self._others(ticket, None, ticket.lock.refuse_publish) if not 0 < h.stop <= self.clock()]
        in_the_way = [own] if own else held
        if own or len(in_the_way) >= ticket.lock.limit:
            return Answer(verdict="refused", holder=self._seen(in_the_way[0]), lapsed=lapsed)
        own = self._take(ticket, "W", wait_ms)
        if period_ms:
            own.stop = self.clock() + period_ms
            own.until = min(own.until, own.stop)
        return Answer(verdict="admitted", lapsed=lapsed, stop=own.stop)

    def release(self, ticket: Ticket) -> bool:
        own = self._own(ticket)
        if own is None or own.phase != "W" or own.hops[0] != ticket.hop:
            return False
        if self._kept(own):
            return False
        self._drop(ticket.digest, own)
        return True

    def start(self, ticket: Ticket, *, run: str, lease_ms: int, redelivered: bool, period_ms: int = 0) -> Answer:
        own = self._own(ticket)
        runs = own is not None and own.phase in "RF" and own.until > self.clock()
        if runs and own.run == run:
            return Answer(verdict="run", token=own.token)
        known = ticket.known or redelivered
        if known and {ticket.done_member, ticket.spent_member} & self.memory:
            return Answer(verdict="done")
        if own and ticket.hop not in own.hops and ticket.hop < own.hops[0]:
            return Answer(verdict="done")
        if runs:
            return Answer(verdict="busy" if known else "conflict", holder=self._seen(own))
        if own is None and not ticket.known:
            waiting = [h for h in self._holders(ticket.digest) if h.task_id == ticket.task_id and h.phase == "W"]
            own = waiting[0] if waiting else None
        lapsed = self._free_lapsed(ticket, spare=own)
        phases = ticket.lock.refuse_start if ticket.admitted else ticket.lock.refuse_unadmitted
        in_the_way = self._others(ticket, own, phases)
        if len(in_the_way) >= ticket.lock.limit:
            verdict = "conflict" if ticket.meets_strategy(redelivered=redelivered) else "held"
            return Answer(verdict=verdict, holder=self._seen(in_the_way[0]), lapsed=lapsed)
        if not known:
            self.memory -= {ticket.done_member, ticket.spent_member}
        if own is None:
            own = self._take(ticket, "W", 0)
            own.stop = ticket.stop or (self.clock() + period_ms if period_ms else 0)
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
        if own is not None and own.phase == "K" and own.run == "":
            return "kept"
        if own is not None and (own.run if own.phase != "W" else "") != run:
            return "lost"
        if own is None and only_this_message:
            return "gone"
        verdict = "gone"
        if own is not None:
            verdict = "free" if own.phase == "F" else "freed"
            if self._kept(own, ran=True):
                verdict, own.run = "kept", ""
            else:
                self._drop(ticket.digest, own)
        self.memory.add(ticket.spent_member if only_this_message else ticket.done_member)
        return verdict

    def requeue(self, ticket: Ticket, *, run: str, hop: int, wait_ms: int) -> bool:
        own = self._own(ticket)
        if own is None:
            if {ticket.done_member, ticket.spent_member} & self.memory:
                return False
            own = self._take(ticket, "W", 0)
            own.stop = ticket.stop
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

    def renew(self, leases: Sequence[Renew]) -> list[Renewal]:
        return [Renewal(verdict=self._renew(asked.ticket, asked.run, asked.retake, asked.lease_ms)) for asked in leases]

    def look(self, ticket: Ticket, *, run: str) -> tuple[str, int, int]:
        own = self._own(ticket)
        if own and own.until > self.clock() and own.phase != "K":
            mine = "freed" if own.phase == "F" else "mine"
            state = "waiting" if own.phase == "W" else mine if own.run == run else "running"
            return state, own.until - self.clock(), own.token
        return "done" if {ticket.done_member, ticket.spent_member} & self.memory else "none", 0, 0

    def holder(self, ticket: Ticket) -> Seen | None:
        alive = [held for held in map(self._as_swept, self._holders(ticket.digest)) if held]
        over = [h for h in alive if 0 < h.stop <= self.clock()]
        met = [h for h in alive if h.phase in ticket.lock.refuse_publish and h not in over]
        for h in met or [h for h in alive if h.phase in ticket.lock.refuse_start]:
            return Seen(digest=ticket.digest, series=h.series, task_id=h.task_id, run=h.run, phase=PHASES[h.phase],
                        remaining_ms=h.until - self.clock(), since=0, token=h.token, hop=h.hops[0])  # fmt: skip
        return None

    def free(self, held: Seen) -> bool:
        for h in self._holders(held.digest):
            now = self._as_swept(h) if h.series == held.series else None
            if now and PHASES[now.phase] == held.phase and now.phase != "F":
                if now.phase == "R" and h.run == held.run:
                    h.phase, h.stop = "F", 0
                    return True
                if now.phase != "R" and h.hops[0] == held.hop:
                    self._drop(held.digest, h)
                    return True
        return False

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
            held.stop -= ms if held.stop else 0

    def flush(self) -> None:
        self.locks.clear()
        self.memory.clear()

    def forget(self) -> None:
        """The redelivery window has passed."""
        self.memory.clear()

    # ---------------------------------------------------------------- how

    def _renew(self, ticket: Ticket, run: str, retake: bool, lease_ms: int) -> str:
        own = self._own(ticket)
        if own and own.phase in "RF" and own.run == run:
            own.until = self.clock() + lease_ms
            return "renewed"
        lapsed = own is not None and own.phase == "K" and own.run == run
        if own and not lapsed:
            return "over" if own.phase == "W" or (own.phase == "K" and own.run == "") else "lost"
        if {ticket.done_member, ticket.spent_member} & self.memory:
            return "over"
        phases = ticket.lock.refuse_start if ticket.admitted else ticket.lock.refuse_unadmitted
        if not retake or len(self._others(ticket, own, phases)) >= ticket.lock.limit:
            return "lost"
        if own is None:
            own = self._take(ticket, "W", 0)
            own.stop = ticket.stop
        self._run(own, run, lease_ms)
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

    def _kept(self, held: Held, *, ran: bool = False) -> bool:
        """A holder that has run stays until the end of its period; and then it does."""
        if held.stop <= self.clock() or held.phase == "F" or not (ran or held.token):
            return False
        held.phase, held.until = "K", held.stop
        return True

    def _as_swept(self, held: Held) -> Held | None:
        """A copy of it, as a sweep would leave it."""
        copy = replace(held, hops=[*held.hops])
        return copy if held.until > self.clock() or self._kept(copy) else None

    def _sweep(self, digest: str, spare: Held | None) -> list[Held]:
        """Those that held until then."""
        lapsed = [h for h in self._holders(digest) if h.until <= self.clock() and h is not spare and not self._kept(h)]
        for held in lapsed:
            self._drop(digest, held)
        return [held for held in lapsed if held.phase != "F"]

    def _free_lapsed(self, ticket: Ticket, spare: Held | None = None) -> tuple[Lapsed, ...]:
        return tuple(
            Lapsed(task_id=h.task_id, phase=PHASES[h.phase], task=ticket.task, digest=ticket.digest)
            for h in self._sweep(ticket.digest, spare)
        )
