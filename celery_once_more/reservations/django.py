"""The database layer of Django's ORM: PostgreSQL, MySQL, MariaDB and SQLite.

A thread has one connection for each alias of ``DATABASES``. A transaction of ours is on it as well, and therefore refused while
the caller has one open there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import DatabaseError, Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from celery_once_more.exceptions import ConfigurationError, ReservationError
from celery_once_more.reservations.database import Trouble
from celery_once_more.reservations.django_connection import in_transaction, own_transaction
from celery_once_more.reservations.django_insert import insert_once
from celery_once_more.reservations.pyformat import pyformat
from celery_once_more.reservations.row import TABLE
from celery_once_more.reservations.statements import statements
from celery_once_more.reservations.troubles import trouble_of
from celery_once_more.settings import nearest

APP, LABEL = "celery_once_more.django", "once_more"


class DjangoTx:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def rows(self, sql: str, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        with self.connection.cursor() as cursor:
            cursor.execute(pyformat(sql), parameters)
            return cursor.fetchall() if cursor.description else []

    def count(self, sql: str, parameters: Mapping[str, Any]) -> int:
        with self.connection.cursor() as cursor:
            cursor.execute(pyformat(sql), parameters)
            return cursor.rowcount

    def save(self, write: Callable[[Any], None]) -> None:
        """``write`` is given the connection.

        Raises:
            ReservationError: Django would roll back, without a word, as ``write`` caught an error of the database.
        """
        write(self.connection)
        if self.connection.needs_rollback:
            raise ReservationError(
                "save: an error of the database was caught inside, after which nothing can be committed; "
                "put what may fail in an atomic() block of its own"
            )


class DjangoOrm:
    def __init__(self, using: str) -> None:
        """
        Raises:
            ConfigurationError: Django has no settings, or no such alias; or its database is one that nobody has taught us.
        """
        try:
            if using not in connections.settings:
                raise ConfigurationError(f"DATABASES has no alias {using!r}{nearest(str(using), list(connections.settings))}")
            self.dialect = connections[using].vendor
        except ImproperlyConfigured as exc:
            raise ConfigurationError(f"Reservations.django: {exc}") from exc
        statements(self.dialect)
        self._using = using

    @property
    def _connection(self) -> Any:
        """This thread's."""
        return connections[self._using]

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[DjangoTx]:
        connection = self._connection
        if durable and in_transaction(connection):
            raise ReservationError(f"this thread has a transaction open on {self._using!r}, which nothing of ours may be part of")
        with own_transaction(connection, durable=durable):
            yield DjangoTx(connection)

    def join(self, tx: Any) -> DjangoTx:
        """``tx`` is a connection, its alias, or ``None``: the connection of our own alias."""
        if tx is None:
            tx = self._using
        if isinstance(tx, str) and tx in connections.settings:
            tx = connections[tx]
        if isinstance(tx, ConnectionProxy):
            tx = connections[tx.alias]
        if not isinstance(tx, BaseDatabaseWrapper):
            raise ReservationError(f"tx must be a connection of Django, or its alias, not {tx!r}")
        if tx.vendor != self.dialect:
            raise ReservationError(f"tx is of {tx.vendor}, and these reservations are of {self.dialect}")
        if not in_transaction(tx):
            raise ReservationError(
                f"tx has no transaction open on {tx.alias!r}: a row would be committed at once, and stay without the effect; "
                "call it in transaction.atomic()"
            )
        return DjangoTx(tx)

    def has_open_transaction(self) -> bool:
        return in_transaction(self._connection)

    def trouble(self, error: BaseException) -> Trouble:
        return trouble_of(self.dialect, error.__cause__) if isinstance(error, Error) else "other"

    def insert_once(self, tx: Any, model: Any, values: Mapping[str, Any], on: Sequence[str]) -> tuple[Any, bool]:
        return insert_once(self.join(tx).connection, model, values, on, lambda exc: self.trouble(exc) == "duplicate")

    def create_table(self) -> None:
        """By the app's own migration, which is noted as done where the table is there.

        Raises:
            ConfigurationError: the app is not installed.
        """
        if not apps.is_installed(APP):
            raise ConfigurationError(f"the table is made by the migration of an app: put {APP!r} into INSTALLED_APPS")
        try:
            call_command("migrate", LABEL, database=self._using, fake_initial=True, interactive=False, verbosity=0)
        except DatabaseError:
            if TABLE not in self._connection.introspection.table_names():  # else another process was quicker
                raise

    @property
    def makes_table(self) -> str:
        installed = apps.ready and apps.is_installed(APP)
        first = "" if installed else f"{APP!r} in INSTALLED_APPS, and "
        command = f"python manage.py migrate {LABEL}" + f" --database {self._using}" * (self._using != "default")
        return f"{first}{command}, or reservations.create_table()"
