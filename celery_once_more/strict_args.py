"""``strict_args``: a call's arguments are such as a URL could carry, checked where the call is written.

A message may wait long, and what it carries grows old: an id is loaded fresh where the task runs, an object is not. What a
worker publishes for others (the next step of a chain, a callback, a chord's body) is only warned of: an error there would
fail a task that has done its work.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Mapping
from datetime import date, time
from typing import Any
from uuid import UUID

from celery import Task

from celery_once_more import digest
from celery_once_more.exceptions import ArgumentsError

logger = logging.getLogger(__name__)

#: characters
LONGEST_TEXT = 256
_ADVICE = (
    f"strict_args takes str (up to {LONGEST_TEXT} characters), int, bool, None, UUID, dates, and flat lists of them: "
    "pass an id, and load it fresh in the task"
)


def check(task: Task, args: Any, kwargs: Any, message: Mapping[str, Any]) -> None:
    """Refuse what does not fit.

    Raises:
        ArgumentsError: an argument is no str, int, bool, None, UUID, date, nor a flat list of these, or is too long.
    """
    wrong = _first_wrong(task, args or (), kwargs or {})
    if wrong is None:
        return
    error = ArgumentsError(task.name, *wrong)
    follows = "root_id" in message or "parent_id" in message
    if not (follows and task.app.current_worker_task):
        raise error
    logger.warning("%s; it is published all the same, by a worker that goes on with a canvas", error)


def _first_wrong(task: Task, args: Any, kwargs: Any) -> tuple[str, str] | None:
    try:
        bound = digest.bind(task.once_more_signature(), args, kwargs)
    except TypeError:  # Celery says so itself
        return None
    for name, value in _each(bound):
        reason = _unfit(value)
        if reason:
            return name, reason
    return None


def _each(bound: inspect.BoundArguments) -> Iterator[tuple[str, Any]]:
    """Every argument, those of ``*args`` and ``**kwargs`` one by one."""
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((f"{name}[{i}]", item) for i, item in enumerate(value))
        elif kind is inspect.Parameter.VAR_KEYWORD:
            yield from value.items()
        else:
            yield name, value


def _unfit(value: Any) -> str | None:
    """What is wrong with it; ``None``: nothing."""
    if isinstance(value, (list, tuple)):
        wrong = next((item for item in value if not _fits(item)), None)
        return None if wrong is None else f"has {_kind(wrong)} in it; {_ADVICE}"
    return None if _fits(value) else f"is {_kind(value)}; {_ADVICE}"


def _fits(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST_TEXT
    return value is None or isinstance(value, (int, UUID, date, time))


def _kind(value: Any) -> str:
    return f"a text of {len(value)} characters" if isinstance(value, str) else f"a {type(value).__qualname__}"
