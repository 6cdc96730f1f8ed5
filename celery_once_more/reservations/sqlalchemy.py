"""The database layer of SQLAlchemy 2: PostgreSQL by psycopg 3, MySQL and MariaDB by PyMySQL, SQLite."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, TextClause, inspect, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, UnboundExecutionError
from sqlalchemy.orm import Session, scoped_session

from celery_once_more.exceptions import ConfigurationError, ReservationError
from celery_once_more.reservations import insert_once, open_transactions
from celery_once_more.reservations.database import Trouble
from celery_once_more.reservations.row import TABLE
from celery_once_more.reservations.statements import statements
from celery_once_more.reservations.table import metadata, reservation_table, table
from celery_once_more.reservations.troubles import trouble_of

__all__ = ["SqlAlchemy", "metadata", "reservation_table", "table"]

#: what SQLAlchemy calls a dialect -> what it is to the statements
DIALECTS = {"sqlite": "sqlite", "postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}


@functools.lru_cache(maxsize=256)
def _text(sql: str) -> TextClause:
    return text(sql)


class SqlTx:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        result = self._connection.execute(_text(sql), parameters)
        return [tuple(row) for row in result] if result.returns_rows else []

    def count(self, sql: str, parameters: Mapping[str, Any]) -> int:
        return self._connection.execute(_text(sql), parameters).rowcount

    def save(self, write: Callable[[Any], None]) -> None:
        """A session of its own; a commit or rollback by ``write`` itself is not one of the transaction."""
        with Session(bind=self._connection, join_transaction_mode="rollback_only") as session:
            write(session)
            session.flush()


class SqlAlchemy:
    makes_table = "reservations.create_table(), or a migration"

    def __init__(self, engine: Engine) -> None:
        """
        Raises:
            ConfigurationError: it is no engine, or of a dialect that nobody has taught us.
        """
        if not isinstance(engine, Engine):
            hint = "; give its sync_engine" if hasattr(engine, "sync_engine") else ""
            raise ConfigurationError(f"Reservations.sqlalchemy takes an Engine, not {engine!r}{hint}")
        self.dialect = DIALECTS.get(engine.dialect.name, engine.dialect.name)
        statements(self.dialect)
        self._engine = engine
        self._open = open_transactions.watch(engine)

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[SqlTx]:
        with self._engine.connect() as connection:
            if self._isolation is not None:
                connection = connection.execution_options(isolation_level=self._isolation)
            with connection.begin():
                yield SqlTx(connection)

    @property
    def _isolation(self) -> Any:
        """Ours: whatever the engine's is, we must see what was committed meanwhile, and must not commit each statement.

        It costs no round trip with psycopg; MySQL's own REPEATABLE READ does as well, as we only read what we lock.
        """
        if self.dialect == "postgresql":
            return "READ COMMITTED"
        said = self._engine.get_execution_options().get("isolation_level")
        said = said or getattr(self._engine.dialect, "_on_connect_isolation_level", None)
        if str(said).upper() != "AUTOCOMMIT":
            return None
        return "SERIALIZABLE" if self.dialect == "sqlite" else "REPEATABLE READ"

    def join(self, tx: Any) -> SqlTx:
        connection = self._connection_of(tx)
        if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            raise ReservationError("tx commits each statement (AUTOCOMMIT): the marker would stay without the effect")
        return SqlTx(connection)

    def _connection_of(self, tx: Any) -> Connection:
        if isinstance(tx, scoped_session):
            tx = tx()
        if isinstance(tx, Connection):
            return tx
        if not isinstance(tx, Session):
            hint = "; with an AsyncSession: await session.run_sync(lambda s: …)" if hasattr(tx, "run_sync") else ""
            raise ReservationError(f"tx must be a Session or a Connection of SQLAlchemy, not {tx!r}{hint}")
        try:
            tx.get_bind()
        except UnboundExecutionError:  # it has an engine for each model
            return tx.connection(bind_arguments={"bind": self._engine})
        return tx.connection()

    def has_open_transaction(self) -> bool:
        return self._open.any()

    def trouble(self, error: BaseException) -> Trouble:
        if not isinstance(error, DBAPIError):
            return "other"
        return "lost" if error.connection_invalidated else trouble_of(self.dialect, error.orig)

    def insert_once(self, tx: Any, model: Any, values: Mapping[str, Any], on: Sequence[str]) -> tuple[Any, bool]:
        session = tx() if isinstance(tx, scoped_session) else tx
        if not isinstance(session, Session):
            raise ReservationError(f"insert_once: tx must be a Session of SQLAlchemy, not {tx!r}")
        if inspect(model, raiseerr=False) is None or not hasattr(model, "__mapper__"):
            raise ReservationError(f"insert_once: the model must be a mapped class, not {model!r}")
        name = session.get_bind(model).dialect.name
        return insert_once.insert_once(
            session, model, values, on, DIALECTS.get(name, name), lambda exc: self.trouble(exc) == "duplicate"
        )

    def create_table(self) -> None:
        try:
            metadata.create_all(self._engine)
        except SQLAlchemyError:
            if not inspect(self._engine).has_table(TABLE):  # else another process was quicker
                raise
