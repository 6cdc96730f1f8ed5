"""``insert_once`` for Django's models, without an error that spoils the caller's transaction.

Whether the row was made is told by what the INSERT returns; MySQL, which returns nothing, undoes only the statement that violates
an index, and tells by that error. As with ``bulk_create``, no signal is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db import IntegrityError
from django.db.models.base import ModelBase
from django.db.models.sql import InsertQuery

from celery_once_more.exceptions import ReservationError

#: rounds in which the row that is in the way was gone when it was looked for
ROUNDS = 10


def insert_once(
    connection: Any,
    model: Any,
    values: Mapping[str, Any],
    on: Sequence[str],
    is_duplicate: Callable[[BaseException], bool],
) -> tuple[Any, bool]:
    _check(model)
    unique = [_field(model, name) for name in on]
    row = model(**values)
    found = model._base_manager.using(connection.alias).filter(**{one.attname: one.value_from_object(row) for one in unique})
    for _ in range(ROUNDS):
        sql, parameters = _insert(connection, model, row)
        if connection.vendor == "mysql":
            try:
                _execute(connection, sql, parameters)
            except IntegrityError as exc:
                there = _committed(connection, model, found) if is_duplicate(exc) else None
                if there is None:  # it is another index that was violated
                    raise
                return there, False
            return found.get(), True
        columns = ", ".join(connection.ops.quote_name(one.column) for one in unique)
        made = _execute(connection, f"{sql} ON CONFLICT ({columns}) DO NOTHING RETURNING 1", parameters)
        there = found.first()
        if there is not None:
            return there, bool(made)
    raise ReservationError(f"insert_once: a row of {model.__name__} comes and goes; try again")


def _check(model: Any) -> None:
    if not isinstance(model, ModelBase) or model._meta.abstract:
        raise ReservationError(f"insert_once: the model must be a model class of Django, not {model!r}")
    if any(model._meta.concrete_model._meta.parents.values()):
        raise ReservationError(f"insert_once: the model must have one table, and {model.__name__} has another for its parent")


def _field(model: Any, name: str) -> Any:
    try:
        field = model._meta.get_field(name)
    except FieldDoesNotExist:
        field = None
    if field not in model._meta.concrete_fields:
        raise ReservationError(f"insert_once: on= must name fields that are columns, and {name!r} of {model.__name__} is none")
    return field


def _insert(connection: Any, model: Any, row: Any) -> tuple[str, Any]:
    """As ``save`` sends it, with the defaults that the model has."""
    meta = model._meta
    fields = [
        one
        for one in meta.concrete_fields
        if not getattr(one, "generated", False) and (one is not meta.auto_field or row.pk is not None)
    ]
    query = InsertQuery(model)
    query.insert_values(fields, [row])
    [(sql, parameters)] = query.get_compiler(connection=connection).as_sql()
    return sql, parameters


def _committed(connection: Any, model: Any, found: Any) -> Any:
    """A locking read sees what was committed after the transaction began."""
    sql, parameters = found.query.get_compiler(connection=connection).as_sql()
    return next(iter(model._base_manager.using(connection.alias).raw(f"{sql} LOCK IN SHARE MODE", parameters)), None)


def _execute(connection: Any, sql: str, parameters: Any) -> Sequence[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall() if cursor.description else []
