"""What a process writes through Django: statements, and the COMMIT or ROLLBACK of a transaction that wrote.

Every alias counts, also a connection that another thread opens later. A COMMIT is seen where it is sent, so that the hooks of
``on_commit`` come after it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import connections
from django.db.backends.signals import connection_created

from celery_once_more.crash import reach
from celery_once_more.exceptions import ConfigurationError
from celery_once_more.testing.instruments.boundary import Replaced
from celery_once_more.testing.instruments.statements import EffectKind, effect_of

#: connections of the parent: nothing in a forked child may end them
_kept: list[Any] = []


@contextmanager
def watch() -> Iterator[None]:
    watched: list[_Watched] = []

    def attach(connection: Any) -> None:
        if not any(one.connection is connection for one in watched):
            watched.append(_Watched(connection))

    def created(connection: Any, **_: Any) -> None:
        attach(connection)

    for connection in _initialized():
        attach(connection)
    connection_created.connect(created, weak=False)
    try:
        yield
    finally:
        connection_created.disconnect(created)
        for one in watched:
            one.detach()


def open_transactions() -> list[str]:
    """The aliases that are in an ``atomic`` block in this thread, as in a test that rolls everything back at its end."""
    return [connection.alias for connection in _initialized() if connection.in_atomic_block]


def forget_connections() -> None:
    """To be called first in a forked child: none of its parent's connections is used or closed here."""
    for connection in _initialized():
        pools = getattr(type(connection), "_connection_pools", {})
        _kept.extend([connection.connection, *pools.values()])
        pools.clear()
        connection.connection = None
        connection.in_atomic_block = False  # else it would refuse to connect again
    connection_created.connect(_refuse_memory, weak=False, dispatch_uid="celery_once_more.refuse_memory")


class _Watched:
    """One of Django's connections, for as long as it is watched."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        #: the driver's connection whose transaction wrote something
        self._wrote: Any = None
        self._replaced = Replaced()
        self._replaced.put(connection, "_commit", self._sending(connection._commit, "commit"))
        self._replaced.put(connection, "_rollback", self._sending(connection._rollback, "rollback"))
        self._wrapper = self._execute
        connection.execute_wrappers.append(self._wrapper)

    def detach(self) -> None:
        self._replaced.restore()
        if self._wrapper in self.connection.execute_wrappers:
            self.connection.execute_wrappers.remove(self._wrapper)

    def _execute(self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        effect = effect_of(sql if isinstance(sql, str) else _text(sql, self.connection))
        if effect is None or (effect.kind != "sql" and not self._has_written()):
            return execute(sql, params, many, context)
        reach("before", effect.kind, effect.what)
        if many:  # rows may stay of one that fails half-way
            self._note_write()
        result = execute(sql, params, many, context)
        if effect.kind == "sql":
            self._note_write()
        else:
            self._wrote = None
        reach("after", effect.kind, effect.what)
        return result

    def _note_write(self) -> None:
        if self.connection.in_atomic_block or not self.connection.autocommit:
            self._wrote = self.connection.connection

    def _has_written(self) -> bool:
        return self._wrote is not None and self._wrote is self.connection.connection

    def _sending(self, send: Callable[[], Any], kind: EffectKind) -> Callable[[], Any]:
        @functools.wraps(send)
        def watched() -> Any:
            if not self._has_written():
                return send()
            self._reach_or_undo("before", kind)
            result = send()
            self._wrote = None
            self._reach_or_undo("after", kind)
            return result

        return watched

    def _reach_or_undo(self, when: Any, kind: EffectKind) -> None:
        """Where the task dies by an exception, Django goes on and turns autocommit on, which commits; a dead one would not."""
        try:
            reach(when, kind, kind.upper())
        except BaseException:
            self._wrote = None
            self.connection.run_on_commit = []
            self.connection.connection.rollback()
            raise


def _text(sql: Any, connection: Any) -> str:
    """Of a statement that psycopg composed."""
    return str(sql.as_string(connection.connection)) if hasattr(sql, "as_string") else str(sql)


def _initialized() -> list[Any]:
    """Those of this thread, connected or not."""
    return list(connections.all(initialized_only=True)) if settings.configured else []


def _refuse_memory(connection: Any, **_: Any) -> None:
    if connection.vendor == "sqlite" and connection.is_in_memory_db():
        connection.connection.close()
        connection.connection = None
        raise ConfigurationError(
            f"the database {connection.alias!r} is an SQLite in memory, which is another one in each process, so that a test"
            ' which ends processes cannot look at it; name a file in DATABASES[...]["TEST"]["NAME"]'
        )
