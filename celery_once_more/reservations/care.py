"""Care for rows: what waits for a person, what that person says, and what is old enough to go."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from celery_once_more.exceptions import Busy, ConfigurationError, ReservationError
from celery_once_more.reservations import forms
from celery_once_more.reservations.database import Tx
from celery_once_more.reservations.keys import Key, value_of
from celery_once_more.reservations.ledger import Ledger, ahead_us
from celery_once_more.reservations.persist import persist
from celery_once_more.reservations.row import Row
from celery_once_more.reservations.terms import UNSET
from celery_once_more.settings import seconds

logger = logging.getLogger(__name__)

#: how long what is done, failed or free is kept
KEPT = timedelta(days=30)


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """An effect of which nobody knows whether it was done."""

    #: can be given to ``resolve``
    key: Any
    #: what the far side knows it by
    dedup_key: str
    #: fencing token of the last attempt
    token: int
    #: attempts that did not tell how they ended
    attempts: int
    #: of the first of them
    since: datetime
    #: when the row was last written
    updated: datetime


def unknowns(ledger: Ledger, limit: int) -> list[Unknown]:
    def act(tx: Tx) -> list[Unknown]:
        rows = tx.rows(ledger.sql.unknowns, {"ahead": ahead_us(), "batch": _count("limit", limit)})
        return [
            Unknown(
                key=value_of(label),
                dedup_key=dedup_key,
                token=token,
                attempts=takeovers + 1,
                since=_time(since),
                updated=_time(updated),
            )
            for label, dedup_key, _, token, takeovers, since, updated in rows
        ]

    return persist(ledger.database, act, durable=False)


def resolve(ledger: Ledger, key: Key, done: Any, not_done: Any) -> None:
    if (done is UNSET) == (not_done is not True):
        raise ConfigurationError("resolve takes either done=result or not_done=True")
    state, result = ("free", None) if done is UNSET else ("done", forms.encode(done))

    def act(tx: Tx) -> None:
        parameters = {"dedup_key": key.dedup_key, "state": state, "result": result, "ahead": ahead_us()}
        if tx.count(ledger.sql.resolve, parameters):
            return
        rows = tx.rows(ledger.sql.look, parameters)
        row = Row(*rows[0]) if rows else None
        if row is None:
            raise ReservationError(f"reservation {key.text}: there is no such row")
        if row.alive:
            raise Busy(key.text, (row.lease_until - row.now) / 1_000_000)
        if (row.state, row.result) != (state, result):  # else: said twice, or the reply to the first commit was lost
            raise ReservationError(f"reservation {key.text}: its outcome is known: it is {row.state}")

    persist(ledger.database, act, durable=False)
    logger.info("reservation %s: resolved as %s", key.text, state)


@dataclass(frozen=True)
class Purge:
    """Which rows go, and how many of them in a transaction; checked."""

    age_us: int
    batch: int

    @classmethod
    def of(cls, older_than: Any, batch: Any) -> Purge:
        """
        Raises:
            ConfigurationError: one of them makes no sense.
        """
        return cls(int(seconds("older_than", older_than) * 1_000_000), _count("batch", batch))

    def __call__(self, ledger: Ledger) -> int:
        total = 0
        while True:
            parameters = {"age": self.age_us, "batch": self.batch, "ahead": ahead_us()}
            gone = persist(ledger.database, lambda tx: tx.count(ledger.sql.purge, parameters), durable=False)  # noqa: B023
            total += gone
            if gone < self.batch:
                return total


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{name} must be a whole number of at least 1, not {value!r}")
    return value


def _time(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=us)
