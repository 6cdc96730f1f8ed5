"""The marker of ``once``: a row in the caller's own transaction, written without an exception that could spoil it."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Sequence
from typing import Any

from celery_once_more.reservations.database import Database, Tx
from celery_once_more.reservations.keys import Key
from celery_once_more.reservations.ledger import ahead_us
from celery_once_more.reservations.persist import PATIENCE_S, refuse_without_table
from celery_once_more.reservations.statements import MADE, mark_guarded, statements


def mark(database: Database, tx: Any, key: Key) -> bool:
    """Whether the row was made now."""
    sql, joined = statements(database.dialect), database.join(tx)
    parameters = {
        "dedup_key": key.dedup_key, "label": key.text, "state": "done", "attempt": uuid.uuid4().hex, "lease": 0,
        "fingerprint": None, "ahead": ahead_us(),
    }  # fmt: skip
    try:
        if database.dialect == "postgresql":
            [(plain, made)] = joined.rows(sql.mark, parameters)
            return bool(made) if plain else _guarded(joined, key)
        _patiently(database, joined, sql.mark, parameters)
        rows = joined.rows(sql.look, parameters)
    except Exception as exc:
        refuse_without_table(database, exc)
        raise
    return bool(rows) and rows[0][2] == parameters["attempt"]


def _guarded(tx: Tx, key: Key) -> bool:
    tx.rows(mark_guarded(key.dedup_key, key.text, ahead_us()), {})
    [(made,)] = tx.rows(MADE, {})
    return bool(made)


def _patiently(database: Database, tx: Tx, sql: str, parameters: dict[str, Any]) -> Sequence[Any]:
    """A statement that waited too long for a lock was undone alone, and the transaction can go on."""
    began = time.monotonic()
    while True:
        try:
            return tx.rows(sql, parameters)
        except Exception as exc:
            if database.trouble(exc) != "locked" or time.monotonic() - began > PATIENCE_S:
                raise
        time.sleep(random.uniform(0.02, 0.1))
