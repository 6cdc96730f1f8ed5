"""A short transaction that is repeated, within bounds, after a conflict, a lock timeout, or a connection that broke.

What runs in it recognises its own work: the reply to a COMMIT may be lost although it took place.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from celery_once_more.exceptions import ConfigurationError
from celery_once_more.reservations.database import Database, Tx
from celery_once_more.reservations.row import TABLE

T = TypeVar("T")

#: seconds after which a transaction is not begun once more
PATIENCE_S = 15.0
#: tries in that time
TRIES = 50
#: seconds
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5


class Repeat(Exception):
    """What a transaction saw is no longer so; it is to be rolled back, and begun again."""


def persist(database: Database, act: Callable[[Tx], T], *, tries: int = TRIES, durable: bool = True) -> T:
    """``act(tx)`` in a transaction of its own, committed; which ``durable`` is as in :class:`Database`.

    Raises:
        ConfigurationError: there is no table.
    """
    began, pause = time.monotonic(), FIRST_PAUSE
    for left in range(tries - 1, -1, -1):
        try:
            with database.transaction(durable=durable) as tx:
                return act(tx)
        except Exception as exc:
            refuse_without_table(database, exc)
            trouble = "again" if isinstance(exc, Repeat) else database.trouble(exc)
            if trouble not in ("again", "locked", "lost") or not left or time.monotonic() - began > PATIENCE_S:
                raise
        time.sleep(random.uniform(pause / 2, pause))
        pause = min(pause * 2, LONGEST_PAUSE)
    raise AssertionError("tries must be at least 1")


def refuse_without_table(database: Database, error: BaseException) -> None:
    if database.trouble(error) == "no table":
        raise ConfigurationError(f"the database has no table {TABLE}: make it with {database.makes_table}") from error
