"""The moment when a task's body has returned, and nothing of that is stored or published yet."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from celery import Task
from celery.app.trace import build_tracer, task_has_custom

from celery_once_more.crash import reach
from celery_once_more.testing.instruments.boundary import Replaced

#: how many calls of the watched body are on the stack: one that calls itself has returned when the outermost has
_deep: ContextVar[int] = ContextVar("celery_once_more.returned", default=0)


@contextmanager
def returned(task: Task) -> Iterator[None]:
    """Watch what Celery's tracer calls: ``run``, or the task's own ``__call__``. One that raises has not returned."""
    task = task._get_current_object() if hasattr(task, "_get_current_object") else task
    replaced = Replaced()
    if task_has_custom(task, "__call__"):
        replaced.put(type(task), "__call__", _watched(type(task).__call__))
    else:
        replaced.put(task, "run", _watched(task.run))
    if task.__trace__ is not None:  # holds what was there when it was built, as a worker does at its start
        replaced.put(task, "__trace__", build_tracer(task.name, task, app=task.app))
    try:
        yield
    finally:
        replaced.restore()


def _watched(body: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(body)
    def run(*args: Any, **kwargs: Any) -> Any:
        before = _deep.set(_deep.get() + 1)
        try:
            result = body(*args, **kwargs)
        finally:
            _deep.reset(before)
        if not _deep.get():
            reach("after", "return", "return")
        return result

    return run
