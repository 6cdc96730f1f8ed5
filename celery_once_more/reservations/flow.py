"""A claim, the effect, a completion: the way of one call through these, and what becomes of the row where it breaks off.

Whatever ends the effect other than its return leaves its outcome unknown, unless the caller said of that error that nothing was
done, or that no later attempt would mend it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from celery_once_more import crash
from celery_once_more.exceptions import (
    FingerprintMismatch,
    LostReservation,
    OpenTransaction,
    PreviouslyFailed,
    ReservationError,
)
from celery_once_more.reservations import decide, forms, in_task, terms
from celery_once_more.reservations.database import Database
from celery_once_more.reservations.keys import Key
from celery_once_more.reservations.ledger import Attempt, End, Ledger
from celery_once_more.reservations.persist import Repeat
from celery_once_more.reservations.policy import CANNOT_SAY, NOT_DONE, Done
from celery_once_more.reservations.reservation import Reservation
from celery_once_more.reservations.row import Row
from celery_once_more.reservations.terms import Terms

logger = logging.getLogger(__name__)

Save = Callable[[Any, Any], None]

#: seconds after which a call that could not get at its row comes back
SOON_S = 5.0
#: tries to write that an outcome is unknown, which a lapsed lease says as well
FEW = 3


@dataclass
class Held:
    """A claim in this process."""

    attempt: Attempt
    reservation: Reservation
    terms: Terms
    #: whether an earlier attempt may have done the effect
    in_doubt: bool


class Flow:
    def __init__(self, database: Database, ledger: Ledger) -> None:
        self._database, self._ledger = database, ledger

    def enter(self, key: Key, said: Terms, save: Save | None) -> Held | Done:
        """
        Returns:
            The claim, or what came of the effect before.
        """
        if self._database.has_open_transaction():
            raise OpenTransaction(key.text)
        held = self._claim(key, said, save)
        if isinstance(held, Held) and held.in_doubt and said.policy.ask is not None:
            return self._ask(held, said.policy.ask, save)
        return held

    def _claim(self, key: Key, said: Terms, save: Save | None) -> Held | Done:
        attempt = uuid.uuid4().hex
        crash.reach("before", "claim", key.text)
        try:
            decision, row = self._ledger.claim(key, attempt, said, None if save is None else lambda tx: save(tx, None))
        except Exception as exc:
            if isinstance(exc, Repeat) or self._database.trouble(exc) in ("again", "locked"):
                logger.warning("reservation %s: its row is locked, and nothing is begun: %s", key.text, exc)
                raise in_task.busy(key.text, SOON_S) from exc
            raise
        crash.reach("after", "claim", key.text)
        if isinstance(decision, decide.Stored):
            return Done(forms.decode(row.result))
        if isinstance(decision, decide.Assume):
            logger.warning("reservation %s: an earlier attempt did not tell how it ended; it counts as done", key.text)
            return Done()
        if isinstance(decision, (decide.Mine, decide.Take)):
            return self._held(Attempt(key, attempt, row.token, row.takeovers), said)
        raise _refusal(key, decision, row)

    def _held(self, attempt: Attempt, said: Terms) -> Held:
        def extend(lease: Any) -> None:
            lease_us = said.lease_us if lease is None else terms.lease_us(lease, in_task.hard_limit_s())
            self._ledger.extend(attempt, lease_us)

        reservation = Reservation(
            key=attempt.key.text, dedup_key=attempt.key.dedup_key, token=attempt.token, takeovers=attempt.takeovers, extend=extend
        )
        if attempt.takeovers:
            logger.warning(
                "reservation %s: taken over, as %d attempts before did not tell how they ended; %s decides",
                attempt.key.text, attempt.takeovers, said.policy,
            )  # fmt: skip
        return Held(attempt, reservation, said, in_doubt=attempt.takeovers > 0)

    def _ask(self, held: Held, ask: Callable[[Any], Any], save: Save | None) -> Held | Done:
        attempt = held.attempt
        try:
            answer = ask(held.reservation)
        except BaseException:
            self._give_back(held)
            raise
        if isinstance(answer, Done):
            return Done(self.complete(held, answer.result, save))
        if answer is NOT_DONE:
            held.in_doubt = False
            return held
        self._give_back(held)
        if answer is CANNOT_SAY:
            raise in_task.unknown(attempt.key.text, "the far side cannot say")
        raise ReservationError(
            f"reservation {attempt.key.text}: verify must answer Done(result), NOT_DONE or CANNOT_SAY, not {answer!r}"
        )

    def complete(self, held: Held, result: Any, save: Save | None) -> Any:
        try:
            text = forms.encode(result)
            stored = forms.decode(text)
            self._end(held, End("done", held.attempt.takeovers, text), None if save is None else lambda tx: save(tx, stored))
        except LostReservation:
            raise
        except BaseException:
            self._leave_unknown(held)
            raise
        return stored

    def broken(self, held: Held, error: BaseException) -> None:
        """The effect raised; its error goes on to the caller, whatever becomes of the row."""
        attempt, said = held.attempt, held.terms
        if isinstance(error, said.not_done):
            self._try(held, End("unknown", attempt.takeovers - 1) if held.in_doubt else End("free", 0), last=self._end)
        elif isinstance(error, said.final):
            self._try(held, End("failed", attempt.takeovers, forms.encode_error(error)), last=self._end)
        else:
            self._leave_unknown(held)

    def _give_back(self, held: Held) -> None:
        """This attempt did nothing, and learnt nothing of the earlier ones."""
        self._try(held, End("unknown", held.attempt.takeovers - 1), last=self._ledger_end)

    def _leave_unknown(self, held: Held) -> None:
        self._try(held, End("unknown", held.attempt.takeovers), last=self._ledger_end)

    def _try(self, held: Held, end: End, *, last: Callable[[Held, End], None]) -> None:
        try:
            last(held, end)
        except LostReservation as exc:
            logger.warning("%s", exc)
        except Exception as exc:
            logger.warning(
                "reservation %s: that it is %s cannot be written, and its outcome counts as unknown when its lease ends: %s",
                held.attempt.key.text, end.state, exc,
            )  # fmt: skip

    def _end(self, held: Held, end: End, write: Callable[[Any], None] | None = None) -> None:
        crash.reach("before", "completion", held.attempt.key.text)
        self._ledger.complete(held.attempt, end, write)
        crash.reach("after", "completion", held.attempt.key.text)

    def _ledger_end(self, held: Held, end: End) -> None:
        self._ledger.complete(held.attempt, end, tries=FEW)


def _refusal(key: Key, decision: decide.Decision, row: Row) -> ReservationError:
    if isinstance(decision, decide.Failed):
        return PreviouslyFailed(key.text, *forms.decode(row.result))
    if isinstance(decision, decide.Wait):
        return in_task.busy(key.text, decision.retry_after_s)
    if isinstance(decision, decide.Park):
        logger.error("reservation %s: left for a person: %s", key.text, decision.why)
        return in_task.unknown(key.text, decision.why)
    assert isinstance(decision, decide.Mismatch)
    return FingerprintMismatch(key.text)
