"""A business row under its own unique index: inserted, or found, without an error that spoils the caller's transaction.

Whether it was made is told by what the INSERT returns; MySQL, which returns nothing, undoes only the statement that violates an
index, and tells by that error. PostgreSQL at REPEATABLE READ cannot show a row that was committed meanwhile, and fails there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import insert, inspect, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from celery_once_more.exceptions import ReservationError

#: rounds in which the row that is in the way was gone when it was looked for
ROUNDS = 10


def insert_once(
    session: Session,
    model: Any,
    values: Mapping[str, Any],
    on: Sequence[str],
    dialect: str,
    is_duplicate: Callable[[BaseException], bool],
) -> tuple[Any, bool]:
    session.flush()  # what the row refers to
    for _ in range(ROUNDS):
        if dialect == "mysql":
            try:
                session.execute(insert(model).values(**values))
            except IntegrityError as exc:
                if not is_duplicate(exc):
                    raise
                found = _find(session, model, values, on, lock=True)
                if found is None:  # it is another index that was violated
                    raise
                return found, False
            return _find(session, model, values, on, lock=False), True
        made = _returned(session, model, values, on, dialect)
        if made is not None:
            return made, True
        found = _find(session, model, values, on, lock=False)
        if found is not None:
            return found, False
    raise ReservationError(f"insert_once: a row of {model.__name__} comes and goes; try again")


def _returned(session: Session, model: Any, values: Mapping[str, Any], on: Sequence[str], dialect: str) -> Any:
    columns = [inspect(model).columns[name] for name in on]
    upsert = (postgresql if dialect == "postgresql" else sqlite).insert(model).values(**values)
    return session.scalars(upsert.on_conflict_do_nothing(index_elements=columns).returning(model)).one_or_none()


def _find(session: Session, model: Any, values: Mapping[str, Any], on: Sequence[str], *, lock: bool) -> Any:
    """A locking read sees what was committed after the transaction began."""
    wanted = select(model).filter_by(**{name: values[name] for name in on}).execution_options(populate_existing=True)
    return session.scalars(wanted.with_for_update(read=True) if lock else wanted).one_or_none()
