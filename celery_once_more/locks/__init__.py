"""Where locks live: the verbs of a lock store and what each one answers.

The rules behind the answers are the state table in ``docs/state-table.md``; the one implementation is ``redis.py``.
Every verb may be sent twice (a client repeats a command whose reply was lost) and changes nothing the second time; acquire,
start and requeue also answer as the first time. All of them raise :class:`~celery_once_more.exceptions.StoreUnavailable`, and
none of them waits for a lock. Durations are milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from celery_once_more.ticket import Ticket

#: as people read them; a run that was freed before its end (``F``) still runs
PHASES = {"W": "waiting", "R": "running", "F": "running", "K": "kept"}


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A holder as others see it: the task id that people know it by, its phase, and what is left of its deadline."""

    task_id: str
    phase: str
    remaining_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class Lapsed(Holder):
    """A holder that was freed because its deadline had passed."""

    task: str = ""
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the store says.

    To a publish: ``admitted`` or ``refused``. To a start: ``run``, ``busy``, ``held``, ``done`` or ``conflict``.
    """

    verdict: str
    #: who is in the way
    holder: Holder | None = None
    #: fencing token of this run
    token: int | None = None
    #: end of the period of a publish that was admitted, in ms on the store's clock; 0: it has none
    stop: int = 0
    #: holders of this lock that were found lapsed, and freed, on the way
    lapsed: tuple[Lapsed, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Held(Holder):
    """A holder as whoever wants to free exactly it needs to know it."""

    digest: str
    series: int
    #: id of its run; empty while it waits
    run: str
    hop: int
    #: seconds since the epoch, on the store's clock: of its publish, or of the start of its last run
    since: int
    #: fencing token of its last run; 0: it has not run
    token: int


@dataclass(frozen=True, kw_only=True)
class Renew:
    """A lease to renew."""

    ticket: Ticket
    run: str
    lease_ms: int
    #: whether a lock that is gone may be taken again
    retake: bool = False


@dataclass(frozen=True, kw_only=True)
class Renewal:
    #: ``renewed``; ``retaken`` (the lock was gone, and free); ``over`` (finished or moved on); ``lost``; ``unknown`` (no answer)
    verdict: str


@dataclass(frozen=True, kw_only=True)
class Reaped:
    lapsed: list[Lapsed] = field(default_factory=list)
    #: records that this package cannot read; left alone
    foreign: list[str] = field(default_factory=list)
    #: tasks of the entries whose deadline had moved on: looked at, and kept
    kept: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the message of a waiting holder can be looked for."""

    #: names a list in a broker; only ``brokers.py`` reads it
    name: str
    #: until its ETA
    eta_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A waiting holder whose message can be looked for, and may have been picked up by now."""

    digest: str
    series: int
    hop: int
    task_id: str
    task: str
    place: str


class LockStore(Protocol):
    @property
    def suspects(self) -> Suspects: ...

    def acquire(self, ticket: Ticket, *, wait_ms: int, period_ms: int = 0, place: Place | None = None) -> Answer:
        """Admit a publish, or refuse it; a holder admitted waits for at most ``wait_ms``, and stays for ``period_ms``."""

    def release(self, ticket: Ticket) -> bool:
        """Free a holder that only waits, for this very message; never one that runs."""

    def start(self, ticket: Ticket, *, run: str, lease_ms: int, redelivered: bool, period_ms: int = 0) -> Answer:
        """The one question at the start of a run; ``period_ms`` where no publish began its period."""

    def finish(self, ticket: Ticket, *, run: str, only_this_message: bool = False) -> str:
        """The run is over for good: ``freed``, ``kept`` (until its period is over), ``free`` (it was freed before), ``gone``
        (nothing was held) or ``lost`` (somebody else's now).

        The call is remembered as done, except when ``lost``. ``only_this_message``, for who cannot know whether a retry was
        published: just the message is remembered, and nothing where nothing was held.
        """

    def requeue(self, ticket: Ticket, *, run: str | None, hop: int, wait_ms: int, place: Place | None = None) -> bool:
        """Back to waiting for message ``hop`` of the call; ``False``: this run has no say any more, do not publish."""

    def confirm(self, ticket: Ticket, *, hop: int, wait_ms: int) -> None:
        """Message ``hop`` is in the broker: the message of ``ticket`` is spent, and the holder waits ``wait_ms``."""

    def renew(self, leases: Sequence[Renew]) -> list[Renewal]:
        """Renew the leases of many runs, in one round trip."""

    def look(self, ticket: Ticket, *, run: str) -> tuple[str, int, int]:
        """How a message stands (``mine``, ``freed``, ``running``, ``waiting``, ``done``, ``none``), ms left, token."""

    def holder(self, ticket: Ticket) -> Held | None:
        """Who is in the way of a publish of this ticket's lock, else of a start."""

    def free(self, held: Held) -> bool:
        """Free exactly this holder, if it is still as it was seen; a run that goes on stays known, and refuses nobody."""

    def reap(self, buckets: Iterable[int], *, limit: int) -> Reaped:
        """Free what lapsed in some of the 256 buckets, at most ``limit`` holders."""

    def waiting(self, *, limit: int) -> list[Waiting]:
        """Holders whose messages can be looked for: all of them, or where more than ``limit`` locks are held, a random part."""

    def release_all(self, waiting: Sequence[Waiting]) -> list[Waiting]:
        """As :meth:`release`, for many, in one round trip; those that were freed."""


class Suspects(Protocol):
    """Waiting holders whose message one look did not find. A second one frees them, if no worker that lives knows of it."""

    def noted(self) -> dict[Waiting, str]:
        """All of them, and when each was noted."""

    def note(self, missing: Mapping[Waiting, str], found: Iterable[Waiting], *, lease_ms: int) -> list[Waiting]:
        """What one look has found, and what not (with what :meth:`noted` said before it, or ``""``): those proved gone."""

    def ask(self, worker: str, *, lease_ms: int) -> Asked:
        """The question to each worker, at every beat: which of them does it know of?"""

    def vouch(self, worker: str, asked: Asked, known: Iterable[Waiting], *, lease_ms: int) -> None:
        """Its answer, which is needed where there are any."""


@dataclass(frozen=True)
class Asked:
    suspects: list[Waiting]
    #: when they were read, in ms on the store's clock
    at: int
