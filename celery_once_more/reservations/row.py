"""A reservation's row, as a claim sees it. Times are microseconds since the epoch, on the database's clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TABLE = "once_more_reservation"

#: ``running`` past its lease is as ``unknown``: nobody knows whether the effect was done
State = Literal["running", "unknown", "free", "done", "failed"]
STATES: tuple[State, ...] = ("running", "unknown", "free", "done", "failed")
#: what an attempt can make of its row
Outcome = Literal["unknown", "free", "done", "failed"]


@dataclass(frozen=True)
class Row:
    state: State
    #: grows with each attempt, also over a purge of the row
    token: int
    #: id of the attempt that had, or has, the row
    attempt: str
    #: attempts before that one whose outcome nobody knows
    takeovers: int
    #: claim of the first attempt whose outcome may be unknown
    since: int
    #: 0 unless it is running
    lease_until: int
    fingerprint: str | None
    #: JSON: the result of ``done``, the error of ``failed``
    result: str | None
    #: when the row was read
    now: int

    @property
    def alive(self) -> bool:
        return self.state == "running" and self.lease_until > self.now

    @property
    def in_doubt(self) -> bool:
        return self.state == "unknown" or (self.state == "running" and not self.alive)
