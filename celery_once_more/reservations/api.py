"""``Reservations``: what users call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from celery_once_more.exceptions import AlreadyDone, ConfigurationError, ReservationError
from celery_once_more.reservations import care, in_task, terms
from celery_once_more.reservations.database import Database
from celery_once_more.reservations.flow import Flow, Save
from celery_once_more.reservations.keys import once_key, run_key
from celery_once_more.reservations.ledger import Ledger
from celery_once_more.reservations.mark import mark
from celery_once_more.reservations.policy import Done, Policy
from celery_once_more.reservations.reservation import Reservation
from celery_once_more.reservations.terms import UNSET, Errors, Seconds, Terms, Unset

if TYPE_CHECKING:
    from celery import Celery, Task
    from sqlalchemy import Engine


class Reservations:
    """Effects that happen once, each under a key of its own. One of it serves a whole process, and all its threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ledger = Ledger(database)
        self._flow = Flow(database, self._ledger)

    @classmethod
    def sqlalchemy(cls, engine: Engine) -> Reservations:
        """Rows in the database of a SQLAlchemy engine: PostgreSQL, MySQL, MariaDB or SQLite.

        Raises:
            ConfigurationError: it is not such an engine.
        """
        from celery_once_more.reservations.sqlalchemy import SqlAlchemy

        return cls(SqlAlchemy(engine))

    @classmethod
    def django(cls, using: str = "default") -> Reservations:
        """Rows in the database that Django's ``DATABASES`` has under an alias: PostgreSQL, MySQL, MariaDB or SQLite.

        Raises:
            ConfigurationError: there is no Django, or it has no settings, or no such alias.
        """
        try:
            from celery_once_more.reservations.django import DjangoOrm
        except ImportError as exc:
            raise ConfigurationError(f"Reservations.django needs Django 4.2 or later: {exc}") from exc
        return cls(DjangoOrm(using))

    def once(self, key: Any, *, tx: Any = None) -> bool:
        """For an effect inside our own database: whether the caller shall do it now, in this very transaction.

        A marker is written in ``tx``, and comes or goes with it. With SQLAlchemy that is a ``Session`` or a ``Connection``; with
        Django a connection or its alias, and left out, the ``atomic`` block that this thread is in. A concurrent copy waits here
        until that has ended. ``run`` of the same key is something else.

        Raises:
            ReservationError: the key, or ``tx``, is none; or no transaction is open.
            ConfigurationError: there is no table.
        """
        return mark(self._database, tx, once_key(key))

    def insert_once(self, tx: Any, model: Any, values: Mapping[str, Any], *, on: Sequence[str]) -> tuple[Any, bool]:
        """A row of the caller's own, under its unique index over ``on``: ``(row, created)``.

        ``tx`` is as for :meth:`once`; with SQLAlchemy it is a session.

        Raises:
            ReservationError: ``on`` names what ``values`` does not give, or gives as ``None``; ``tx`` or ``model`` is none.
        """
        missing = [name for name in on if values.get(name) is None]
        if missing or not on:
            raise ReservationError(f"insert_once: on={list(on)!r} must name values that are given, and not None; see {missing!r}")
        return self._database.insert_once(tx, model, values, list(on))

    def run(
        self,
        key: Any,
        fn: Callable[[Reservation], Any],
        *,
        on_unknown: Policy,
        lease: Seconds | None = None,
        repeat_within: Seconds | Unset | None = UNSET,
        max_takeovers: int | Unset = UNSET,
        fingerprint: Any = None,
        not_done: Errors = (),
        final: Errors = (),
        save: Save | None = None,
    ) -> Any:
        """For an effect outside: ``fn(reservation)`` under a row that was committed before it, its result stored after it.

        Args:
            key: names the effect; a string, a whole number, a UUID, a date, or a tuple of these.
            fn: does the effect; what it returns is JSON.
            on_unknown: what to do if an earlier attempt did not tell how it ended.
            lease: seconds that the effect takes at most; in a task with a hard time limit that limit and 30 s.
            repeat_within: with ``REPEAT``, how long after the first attempt the far side still knows the deduplication key;
                24 hours, and ``None`` is for ever. Later it acts as ``REFUSE``.
            max_takeovers: with ``REPEAT``, attempts after the first; beyond 5 it acts as ``REFUSE``.
            fingerprint: of what the key stands for, any JSON; another one is refused.
            not_done: errors that say that nothing was done; the key is free at once.
            final: errors that are stored, and come again as ``PreviouslyFailed``.
            save: ``save(tx, result)`` writes in the transaction that completes the row; it may be called again after a rollback.
                ``tx`` is a session of SQLAlchemy, or a connection of Django, in whose ``atomic`` block it is called.

        Returns:
            The result, as JSON gives it back: of this call, or of the one that did the effect.

        Raises:
            Busy: another attempt has the key.
            OutcomeUnknown: it is left for a person.
            PreviouslyFailed: it failed for good.
            FingerprintMismatch: the key stands for another payload.
            LostReservation: the lease ended before the effect did.
            OpenTransaction: this thread has a transaction open.
            ConfigurationError, ReservationError: a wrong argument, or a result that cannot be stored.
        """
        said = self._terms(on_unknown, lease, repeat_within, max_takeovers, fingerprint, not_done, final)
        held = self._flow.enter(run_key(key), said, save)
        if isinstance(held, Done):
            return held.result
        try:
            result = fn(held.reservation)
        except BaseException as exc:
            self._flow.broken(held, exc)
            raise
        return self._flow.complete(held, result, save)

    @contextmanager
    def reserve(
        self,
        key: Any,
        *,
        on_unknown: Policy,
        lease: Seconds | None = None,
        repeat_within: Seconds | Unset | None = UNSET,
        max_takeovers: int | Unset = UNSET,
        fingerprint: Any = None,
        not_done: Errors = (),
        final: Errors = (),
        save: Save | None = None,
    ) -> Iterator[Reservation]:
        """:meth:`run` for a ``with`` block, which sets ``reservation.result``.

        Raises:
            AlreadyDone: on entry, as a ``with`` body cannot be skipped.
        """
        said = self._terms(on_unknown, lease, repeat_within, max_takeovers, fingerprint, not_done, final)
        found = run_key(key)
        held = self._flow.enter(found, said, save)
        if isinstance(held, Done):
            raise AlreadyDone(found.text, held.result)
        try:
            yield held.reservation
        except BaseException as exc:
            self._flow.broken(held, exc)
            raise
        self._flow.complete(held, held.reservation.result, save)

    def unknowns(self, *, limit: int = 1000) -> list[care.Unknown]:
        """What waits for a person, or for the next attempt: the oldest first."""
        return care.unknowns(self._ledger, limit)

    def resolve(self, key: Any, *, done: Any = UNSET, not_done: bool = False) -> None:
        """Say what became of an effect whose outcome is unknown: ``done=result``, or ``not_done=True``.

        Raises:
            Busy: an attempt has it now.
            ReservationError: its outcome is known, or there is no such row.
        """
        care.resolve(self._ledger, run_key(key), done, not_done)

    def purge(self, older_than: Seconds = care.KEPT, batch: int = 1000) -> int:
        """Delete rows that have been done, failed or free for longer; ``batch`` of them in a transaction. How many it were.

        After that their keys are new. Rows whose outcome is unknown stay.
        """
        return care.Purge.of(older_than, batch)(self._ledger)

    def purge_task(
        self,
        app: Celery,
        *,
        name: str = "celery_once_more.purge_reservations",
        older_than: Seconds = care.KEPT,
        batch: int = 1000,
    ) -> Task:
        """A task of this app that does :meth:`purge`, for its beat schedule.

        Raises:
            ConfigurationError: the app has another task with this name, or ``older_than`` or ``batch`` makes no sense.
        """

        purge = care.Purge.of(older_than, batch)

        def purge_reservations() -> int:
            return purge(self._ledger)

        return in_task.task_of(app, name, purge_reservations)

    def create_table(self) -> None:
        """Make the table, unless it is there; for projects without migrations. With Django, by the app's own migration."""
        self._database.create_table()

    @staticmethod
    def _terms(
        on_unknown: Any, lease: Any, repeat_within: Any, max_takeovers: Any, fingerprint: Any, not_done: Any, final: Any
    ) -> Terms:
        return terms.check(
            on_unknown=on_unknown, lease=lease, limit_s=in_task.hard_limit_s(), repeat_within=repeat_within,
            max_takeovers=max_takeovers, fingerprint=fingerprint, not_done=not_done, final=final,
        )  # fmt: skip
