"""The messages that a process publishes through Celery, one before and one after each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery, signals

from celery_once_more.crash import reach


@contextmanager
def watch(app: Celery) -> Iterator[None]:
    """Of every app; ``app`` is the one that has to look for receivers again, if it has published before."""
    signals.before_task_publish.connect(_before, weak=False)
    signals.after_task_publish.connect(_after, weak=False)
    _look_again(app)
    try:
        yield
    finally:
        signals.before_task_publish.disconnect(_before)
        signals.after_task_publish.disconnect(_after)
        _look_again(app)


def _before(sender: Any = None, **_: Any) -> None:
    reach("before", "publish", str(sender))


def _after(sender: Any = None, **_: Any) -> None:
    reach("after", "publish", str(sender))


def _look_again(app: Any) -> None:
    # Celery 5.6 looks once, at an app's first publish, whether anybody listens
    vars(vars(app).get("amqp", app)).pop("send_task_message", None)
