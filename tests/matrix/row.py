"""What a row of the matrix says: how a call is ended, and what must be so afterwards."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

#: when the lock of the ended call is free: its lease and queue lease are longer than any cell, unless they are what is promised
AT_ONCE, LEASE, QUEUE_LEASE = "at once", "with its lease", "with its queue lease"


@dataclass(frozen=True)
class Expect:
    """Of the call that is ended."""

    #: how often it runs
    runs: int
    #: what its result is: a state, or ``FAILURE`` and the name of an exception
    left: str
    free: str = AT_ONCE


@dataclass(frozen=True)
class Row:
    name: str
    #: numbers in the table of ends, in the README
    ends: str
    #: what ends the call
    deed: Callable[[Any], None]
    _: KW_ONLY
    early: Expect
    #: where it is not the same
    late: Expect | None = None
    #: how its first run ends by itself (``bodies.py``), when it is let go on
    how: str = "success"
    #: whether it runs when the deed begins; else it waits in a queue that no worker reads yet
    runs: bool = True
    #: how many of its runs wait until they are let go on
    gated: int = 1
    #: no worker knows its task
    unknown: bool = False
    #: of its publish
    options: Mapping[str, Any] = field(default_factory=dict)
    #: of the worker that gets it: options of the command line, settings, environment
    worker: tuple[str, ...] = ()
    conf: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    #: whether somebody publishes the same call before the deed
    twin: bool = True
    #: for how many seconds a worker holds that call, where it is let in: at 0 it asks for its lock at once, and again and again;
    #: a worker that dies or loses a connection may die while it asks, and Celery loses such a call with early acknowledgement
    twin_due: float = 0
    #: the worker is not as it was afterwards, and gets no other cell
    spoils: bool = False
    #: the deed takes every lock away, whose ever it is
    forgets: bool = False
    #: the deed makes two runs overlap, which only fencing tokens can disarm
    overlaps: bool = False
    #: pool or broker -> why there is no such end, or what is expected there: ``(early, late)``
    elsewhere: Mapping[str, str | tuple[Expect, Expect]] = field(default_factory=dict)

    def why_not(self, pool: str) -> str | None:
        said = self.elsewhere.get(pool)
        return said if isinstance(said, str) else None

    def expected(self, pool: str, broker: str, ack: str) -> Expect:
        for where in (f"{pool}, {broker}", pool, broker):
            if isinstance(said := self.elsewhere.get(where), tuple):
                return said[ack == "late"]
        return self.late or self.early if ack == "late" else self.early
