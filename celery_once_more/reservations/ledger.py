"""The verbs of a reservation's row: each is one short transaction, and knows its own work again when it is repeated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from celery_once_more import crash
from celery_once_more.exceptions import LostReservation
from celery_once_more.reservations.database import Database, Tx
from celery_once_more.reservations.decide import Assume, Decision, Park, Take, decide
from celery_once_more.reservations.keys import Key
from celery_once_more.reservations.persist import TRIES, Repeat, persist
from celery_once_more.reservations.row import Outcome, Row
from celery_once_more.reservations.statements import Statements, statements
from celery_once_more.reservations.terms import Terms

Write = Callable[[Any], None]


@dataclass(frozen=True)
class Attempt:
    """A claim: what each later statement compares."""

    key: Key
    id: str
    token: int
    takeovers: int

    @property
    def parameters(self) -> dict[str, Any]:
        return {"dedup_key": self.key.dedup_key, "token": self.token, "attempt": self.id}


@dataclass(frozen=True)
class End:
    """What an attempt makes of its row."""

    state: Outcome
    takeovers: int
    #: JSON
    result: str | None = None


class Ledger:
    def __init__(self, database: Database) -> None:
        self.database = database

    @cached_property
    def sql(self) -> Statements:
        return statements(self.database.dialect)

    def claim(self, key: Key, attempt: str, terms: Terms, assumed: Write | None) -> tuple[Decision, Row]:
        """Take the row, or learn why not. ``assumed`` writes where the effect counts as done from now on."""

        def act(tx: Tx) -> tuple[Decision, Row]:
            parameters = {
                "dedup_key": key.dedup_key, "label": key.text, "state": "running", "attempt": attempt, "lease": terms.lease_us,
                "fingerprint": terms.fingerprint, "ahead": ahead_us(),
            }  # fmt: skip
            row = self._look(tx, parameters, tx.rows(self.sql.claim, parameters))
            decision = decide(row, attempt, terms)
            if isinstance(decision, Take):
                row = self._take(tx, row, decision, parameters)
            elif isinstance(decision, Park) and row.state == "running":
                self._settle(tx, key, row, "unknown", None)
            elif isinstance(decision, Assume):
                self._settle(tx, key, row, "done", "null")
                if assumed is not None:
                    tx.save(assumed)
            return decision, row

        return persist(self.database, act)

    def complete(self, attempt: Attempt, end: End, write: Write | None = None, *, tries: int = TRIES) -> None:
        """
        Raises:
            LostReservation: the attempt has the row no longer; nothing is written, by ``write`` neither.
        """

        def act(tx: Tx) -> None:
            parameters = attempt.parameters | {
                "state": end.state, "result": end.result, "takeovers": end.takeovers, "ahead": ahead_us(),
            }  # fmt: skip
            if tx.count(self.sql.complete, parameters):
                if write is not None:
                    tx.save(write)
                return
            row = self._row(tx.rows(self.sql.look, parameters))
            if row is None or (row.attempt, row.token, row.state) != (attempt.id, attempt.token, end.state):
                raise LostReservation(attempt.key.text, _why(row, attempt))

        persist(self.database, act, tries=tries)

    def extend(self, attempt: Attempt, lease_us: int) -> None:
        """
        Raises:
            LostReservation: the attempt has the row no longer.
        """

        def act(tx: Tx) -> None:
            parameters = attempt.parameters | {"lease": lease_us, "ahead": ahead_us()}
            if not tx.count(self.sql.extend, parameters):
                raise LostReservation(attempt.key.text, _why(self._row(tx.rows(self.sql.look, parameters)), attempt))

        persist(self.database, act)

    def _look(self, tx: Tx, parameters: Mapping[str, Any], made: Any) -> Row:
        row = self._row(made or tx.rows(self.sql.look, parameters))
        if row is None:  # purged in between
            raise Repeat
        return row

    @staticmethod
    def _row(rows: Any) -> Row | None:
        return Row(*rows[0]) if rows else None

    def _take(self, tx: Tx, row: Row, take: Take, parameters: Mapping[str, Any]) -> Row:
        token = max(row.token + 1, row.now)
        since = row.since if take.in_doubt else row.now
        moved = {**parameters, **_seen(row), "token": token, "takeovers": take.takeovers, "since": since}
        if not tx.count(self.sql.take, moved):
            raise Repeat
        return Row("running", token, parameters["attempt"], take.takeovers, since, 0, row.fingerprint, None, row.now)

    def _settle(self, tx: Tx, key: Key, row: Row, state: Outcome, result: str | None) -> None:
        parameters = {"dedup_key": key.dedup_key, "state": state, "result": result, "ahead": ahead_us(), **_seen(row)}
        if not tx.count(self.sql.settle, parameters):
            raise Repeat


def ahead_us() -> int:
    return int(crash.ahead_s() * 1_000_000)


def _seen(row: Row) -> dict[str, Any]:
    return {
        "seen_state": row.state, "seen_token": row.token, "seen_attempt": row.attempt, "seen_lease_until": row.lease_until,
    }  # fmt: skip


def _why(row: Row | None, attempt: Attempt) -> str:
    if row is None:
        return "its row is gone"
    if (row.attempt, row.token) != (attempt.id, attempt.token):
        return "another attempt has taken it over"
    return "its lease has ended" if row.state == "running" else f"it is {row.state}"
