"""Row, terms and the clock -> what a call may do. Pure: every case is a line of the table in its test."""

from __future__ import annotations

from dataclasses import dataclass

from celery_once_more.reservations.policy import ASSUME_DONE, REFUSE, REPEAT
from celery_once_more.reservations.row import Row
from celery_once_more.reservations.terms import Terms

US = 1_000_000


@dataclass(frozen=True)
class Mine:
    """This very attempt has the row: it was made just now, or the reply to its commit was lost."""


@dataclass(frozen=True)
class Take:
    """The row goes to this attempt."""

    #: as in the row
    takeovers: int
    #: whether an earlier attempt may have done the effect
    in_doubt: bool


@dataclass(frozen=True)
class Stored:
    """It is done."""


@dataclass(frozen=True)
class Failed:
    """It failed for good."""


@dataclass(frozen=True)
class Assume:
    """It counts as done from now on."""


@dataclass(frozen=True)
class Wait:
    """Another attempt has it."""

    retry_after_s: float


@dataclass(frozen=True)
class Mismatch:
    """The row is of another payload."""


@dataclass(frozen=True)
class Park:
    """It is left for a person."""

    why: str


Decision = Mine | Take | Stored | Failed | Assume | Wait | Mismatch | Park


def decide(row: Row, attempt: str, terms: Terms) -> Decision:
    if row.attempt == attempt and row.state == "running":
        return Mine()
    if None not in (row.fingerprint, terms.fingerprint) and row.fingerprint != terms.fingerprint:
        return Mismatch()
    if row.state == "done":
        return Stored()
    if row.state == "failed":
        return Failed()
    if row.state == "free":
        return Take(0, in_doubt=False)
    if row.alive:
        return Wait((row.lease_until - row.now) / US)
    return _in_doubt(row, terms)


def _in_doubt(row: Row, terms: Terms) -> Decision:
    if terms.policy == REFUSE:
        return Park("an earlier attempt did not tell how it ended")
    if terms.policy == ASSUME_DONE:
        return Assume()
    if terms.policy == REPEAT:
        if row.takeovers >= terms.max_takeovers:
            return Park(f"{row.takeovers + 1} attempts did not tell how they ended")
        if terms.repeat_within_us is not None and row.now - row.since > terms.repeat_within_us:
            return Park(f"the far side remembers the key for {terms.repeat_within_us / US:g} s, and the first attempt is older")
    return Take(row.takeovers + 1, in_doubt=True)
