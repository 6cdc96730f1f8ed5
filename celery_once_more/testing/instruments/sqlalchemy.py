"""What a process writes through SQLAlchemy: statements, and the COMMIT or ROLLBACK of a transaction that wrote.

The listeners are those of every engine, also of one that is made later; an async engine has a plain one inside. A dialect is
the only one that knows when a COMMIT has come back, so it is wrapped at its first statement that writes. What a program does
with the driver's own connection (``engine.raw_connection()``) is not seen. A statement for many rows is as many points as the
calls of the driver that it takes: one, but for thousands of rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, PoolProxiedConnection, event

from celery_once_more.crash import reach
from celery_once_more.testing.instruments.boundary import Replaced, boundary
from celery_once_more.testing.instruments.sqlalchemy_forked import forget_connections
from celery_once_more.testing.instruments.statements import EffectKind, effect_of

__all__ = ["forget_connections", "watch"]

#: of the pool's ``info`` for a connection: its transaction wrote something
_WROTE = "celery_once_more.wrote"


@contextmanager
def watch() -> Iterator[None]:
    replaced = Replaced()

    def before(conn: Connection, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool) -> None:
        effect = effect_of(statement)
        if effect is None or not _counts(conn, effect.kind):
            return
        _wrap(conn.dialect, replaced)
        if executemany:  # rows may stay of one that fails half-way
            conn.connection.info[_WROTE] = True
        reach("before", effect.kind, effect.what)

    def after(conn: Connection, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool) -> None:
        effect = effect_of(statement)
        if effect is None or not _counts(conn, effect.kind):
            return
        if effect.kind == "sql":
            _note_write(conn)
        else:
            conn.connection.info.pop(_WROTE, None)
        reach("after", effect.kind, effect.what)

    listeners = {"before_cursor_execute": before, "after_cursor_execute": after}
    for name, listener in listeners.items():
        event.listen(Engine, name, listener)
    try:
        yield
    finally:
        for name, listener in listeners.items():
            event.remove(Engine, name, listener)
        replaced.restore()


def _counts(conn: Connection, kind: EffectKind) -> bool:
    """A COMMIT that is sent as a text ends what wrote, or nothing."""
    return kind == "sql" or _WROTE in conn.connection.info


def _note_write(conn: Connection) -> None:
    inside = _in_transaction(conn.connection)
    if (not _autocommit(conn)) if inside is None else inside:
        conn.connection.info[_WROTE] = True
    else:
        conn.connection.info.pop(_WROTE, None)


def _in_transaction(connection: PoolProxiedConnection) -> bool | None:
    """As the driver knows it without asking the server, whoever began it; ``None`` where it does not."""
    driver = connection.driver_connection
    known = getattr(driver, "in_transaction", None)  # SQLite's
    if isinstance(known, bool):
        return known
    status = getattr(getattr(driver, "info", None), "transaction_status", None)  # psycopg's
    return None if status is None else bool(status)


def _autocommit(conn: Connection) -> bool:
    connection: Any = conn.connection.dbapi_connection
    try:
        return bool(conn.dialect.detect_autocommit_setting(connection))
    except (AttributeError, NotImplementedError):  # an older SQLAlchemy, or a dialect that cannot tell
        options = conn.get_execution_options()
        return (options.get("isolation_level") or getattr(conn.dialect, "_on_connect_isolation_level", None)) == "AUTOCOMMIT"


def _wrap(dialect: Any, replaced: Replaced) -> None:
    """What every COMMIT and ROLLBACK goes through: of a connection, of a session, of a pool that resets."""
    for name, kind in (("do_commit", "commit"), ("do_rollback", "rollback")):
        sending = getattr(dialect, name)
        if not hasattr(sending, "once_more_watched"):
            watched = _sending(sending, kind)  # type: ignore[arg-type]
            watched.once_more_watched = True  # type: ignore[attr-defined]
            replaced.put(dialect, name, watched)


def _sending(send: Callable[[Any], None], kind: EffectKind) -> Callable[[Any], None]:
    @functools.wraps(send)
    def watched(connection: Any) -> None:
        pooled = isinstance(connection, PoolProxiedConnection)  # a dialect that looks round has the driver's own
        wrote = pooled and _WROTE in connection.info
        if not wrote or _in_transaction(connection) is False:
            if wrote:
                del connection.info[_WROTE]
            send(connection)
            return
        with boundary(kind, kind.upper()):
            send(connection)
            del connection.info[_WROTE]

    return watched
