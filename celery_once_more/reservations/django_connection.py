"""One of Django's connections: whether the caller has a transaction open on it, and a transaction of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction


def in_transaction(connection: Any) -> bool:
    """The blocks that Django's ``TestCase`` puts round a test count as none, as they do for ``atomic(durable=True)``."""
    if connection.in_atomic_block:
        return not (connection.atomic_blocks and connection.atomic_blocks[-1]._from_testcase)
    return not (connection.settings_dict["AUTOCOMMIT"] if connection.connection is None else connection.autocommit)


@contextmanager
def own_transaction(connection: Any, *, durable: bool) -> Iterator[None]:
    """Of a connection that works; on PostgreSQL at READ COMMITTED, as a claim must see what was committed meanwhile."""
    _mend(connection)
    restore = _read_committed(connection)
    try:
        with transaction.atomic(using=connection.alias, durable=durable):
            if restore is not None:
                connection.on_commit(restore)  # before what the caller hooks there, which has the level that it knows
            yield
    finally:
        if restore is not None:
            restore()


def _mend(connection: Any) -> None:
    """Drop a connection that broke, as Django does between requests; one is not dropped for its age in the midst of a task."""
    if connection.connection is None or not connection.autocommit or not connection.errors_occurred:
        return
    if connection.is_usable():
        connection.errors_occurred = False
    else:
        connection.close()


def _read_committed(connection: Any) -> Callable[[], None] | None:
    """Set it for the next transaction; what is returned sets what was set before."""
    if connection.vendor != "postgresql" or connection.in_atomic_block or not connection.get_autocommit():
        return None
    from django.db.backends.postgresql.psycopg_any import IsolationLevel  # not where there is no psycopg

    driver = connection.connection
    before = driver.isolation_level

    def restore() -> None:
        if connection.connection is driver and not driver.closed:
            _set_isolation(connection, before)

    _set_isolation(connection, IsolationLevel.READ_COMMITTED)
    return restore


def _set_isolation(connection: Any, level: Any) -> None:
    """Costs no round trip with psycopg 3; psycopg2 may find here that the connection is broken."""
    with connection.wrap_database_errors:
        connection.connection.isolation_level = level
