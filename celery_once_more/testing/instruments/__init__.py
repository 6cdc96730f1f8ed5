"""What reports every effect of a running task to ``celery_once_more.crash``: one module for each library."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from celery import Celery

from celery_once_more.testing.instruments import publish
from celery_once_more.testing.instruments.late import on_import
from celery_once_more.testing.instruments.returned import returned

__all__ = ["forget_connections", "load", "open_transactions", "returned", "watch_all"]

#: a library's module that a task cannot do without -> the instrument's module and function
_INSTRUMENTS = {
    "sqlalchemy": ("sqlalchemy", "watch"),
    "django.db": ("django", "watch"),
    "httpx": ("http", "watch_httpx"),
    "requests": ("http", "watch_requests"),
}


@contextmanager
def watch_all(app: Celery) -> Iterator[None]:
    """Watch Celery's publishes and every library that is imported, or that the task imports; import none."""
    with ExitStack() as stack:

        def watch(library: str) -> None:
            module, function = _INSTRUMENTS[library]
            stack.enter_context(_call(module, function))

        stack.enter_context(publish.watch(app))
        for library in _INSTRUMENTS:
            if library in sys.modules:
                watch(library)
        later = {library: partial(watch, library) for library in _INSTRUMENTS if library not in sys.modules}
        with on_import(later):
            yield


def load() -> None:
    """Import what :func:`watch_all` will need here, so that not every forked child has to."""
    for library, (module, _) in _INSTRUMENTS.items():
        if library in sys.modules:
            import_module(f"{__name__}.{module}")


def forget_connections() -> None:
    """To be called first in a forked child: no database connection of its parent is used or closed in it."""
    for library in ("sqlalchemy", "django.db"):
        if library in sys.modules:
            _call(_INSTRUMENTS[library][0], "forget_connections")


def open_transactions() -> list[str]:
    """Django's aliases that are in an ``atomic`` block in this thread."""
    return list(_call("django", "open_transactions")) if "django.db" in sys.modules else []


def _call(module: str, function: str) -> Any:
    return getattr(import_module(f"{__name__}.{module}"), function)()
