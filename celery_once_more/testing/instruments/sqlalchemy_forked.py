"""Keeps a forked child's hands off the database connections of its parent, without knowing any engine.

Two processes that use one connection garble it, and one that closes it closes it for both. A pool's connection that was not
opened here is dropped when the pool would hand it out, and a new one opened; it is kept in memory, as its end would close it.
"""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy import Connection, Engine, Pool, event
from sqlalchemy.exc import DisconnectionError

from celery_once_more.exceptions import ConfigurationError

#: of the pool's ``info`` for a connection: the process that opened it
_OPENED_BY = "celery_once_more.opened_by"
#: connections of the parent: nothing here may end them
_kept: list[Any] = []


def forget_connections() -> None:
    """To be called first in a forked child; lasts as long as the process."""
    for target, name, listener in (
        (Pool, "connect", _opened),
        (Pool, "checkout", _handed_out),
        (Pool, "reset", _given_back),
        (Pool, "close", _closing),
        (Engine, "before_cursor_execute", _used),
        (Engine, "commit", _used),
        (Engine, "rollback", _used),
    ):
        if not event.contains(target, name, listener):
            event.listen(target, name, listener)


class _Gone:
    """In the place of a connection that is the parent's, where it would be closed."""

    def close(self) -> None:
        """Nothing: the parent still uses it."""

    terminate = close


def _opened(connection: Any, record: Any) -> None:
    if type(record.driver_connection).__module__.partition(".")[0] in ("sqlite3", "aiosqlite") and _in_memory(connection):
        raise ConfigurationError(
            "an SQLite database in memory is another one in each process, so that a test which ends processes cannot look at"
            " it; use a file, as in sqlite:///{tmp_path}/test.db"
        )
    record.info[_OPENED_BY] = os.getpid()


def _in_memory(connection: Any) -> bool:
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA database_list")
        return not any(file for _, name, file in cursor.fetchall() if name == "main")
    finally:
        cursor.close()


def _handed_out(connection: Any, record: Any, proxy: Any) -> None:
    if _inherited(record):
        _keep(record)
        record.dbapi_connection = proxy.dbapi_connection = None
        raise DisconnectionError("opened before the fork")


def _given_back(connection: Any, record: Any, state: Any) -> None:
    if record is not None and _inherited(record):
        _keep(record)
        record.dbapi_connection = None
        raise DisconnectionError("opened before the fork")  # or the pool would roll it back


def _closing(connection: Any, record: Any) -> None:
    if _inherited(record):
        _keep(record)
        record.dbapi_connection = _Gone()


def _used(conn: Connection, *_: Any) -> None:
    if not conn.closed and not conn.invalidated and _inherited(conn.connection):
        raise ConfigurationError(
            "a SQLAlchemy connection, or a session in a transaction, was opened before the crash-point test forked its"
            " process, and is used in it; open it in the task, or close it before the check"
        )


def _inherited(owner: Any) -> bool:
    return owner.info.get(_OPENED_BY) != os.getpid()


def _keep(record: Any) -> None:
    if record.dbapi_connection is not None:
        _kept.append(record.dbapi_connection)
