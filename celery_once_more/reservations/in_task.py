"""What reservations ask of Celery, and what they tell it: of the task that runs here, if one does.

A task that leaves with ``Busy`` is published again for later, and one that leaves with ``OutcomeUnknown`` fails for good: any
task, whatever it inherits, and whatever its ``autoretry_for`` says. Where it catches the error, nothing happens.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any

from celery import Celery, Task, current_task, signals
from celery.exceptions import Ignore, Reject, Retry

from celery_once_more.again import again
from celery_once_more.delays import held_s
from celery_once_more.exceptions import Busy, ConfigurationError, OutcomeUnknown

logger = logging.getLogger(__name__)

#: seconds
EXPIRES = 3600


def hard_limit_s() -> float | None:
    """In seconds. A limit that only the worker's command line gives (``--time-limit``) is not seen."""
    task = _running()
    if task is None:
        return None
    limit = (task.request.timelimit or (None,))[0] or task.time_limit or task.app.conf.task_time_limit
    return float(limit) if limit else None


class PutOff(Busy, Retry):
    """``Busy``, as Celery reads it: a retry, which spends nothing, and which ``autoretry_for`` leaves alone."""

    def __init__(self, *args: Any) -> None:
        Retry.__init__(self, when=self.retry_after, exc=Busy(*args))
        self.args = args

    def __reduce__(self) -> Any:
        return type(self), self.args

    __str__ = Busy.__str__


def busy(key: str, retry_after_s: float) -> Busy:
    """The error to raise where another attempt has the key."""
    if _running() is None:
        return Busy(key, retry_after_s)
    signals.task_retry.connect(_publish_again, weak=False, dispatch_uid="celery_once_more.reservations")
    return PutOff(key, retry_after_s)


def unknown(key: str, why: str) -> OutcomeUnknown:
    """The error to raise where it is left for a person: another try would find the same."""
    task = _running()
    if task is not None:
        _never_retries(task)
    return OutcomeUnknown(key, why)


def task_of(app: Celery, name: str, act: Callable[[], Any]) -> Task:
    """A task for the beat schedule; runs that no worker has begun in time are dropped, so that they do not pile up.

    Raises:
        ConfigurationError: the app has another task with this name.
    """
    if name in app.tasks:
        raise ConfigurationError(f"the app has a task {name!r} already: give another name=")
    return app.task(act, name=name, base=Task, shared=False, expires=EXPIRES, typing=False)


def _running() -> Task | None:
    """Nothing ends or retries a task that is called directly or in eager mode."""
    if not current_task or current_task.request.called_directly or current_task.request.is_eager:
        return None
    return current_task._get_current_object()


def _publish_again(sender: Task, request: Any, reason: Any, einfo: Any, **_: Any) -> None:
    """``task_retry``: where the message cannot be published, this delivery goes back to the queue, or the task fails.

    Its result says RETRY by now. ``einfo`` is what the worker's main process goes by.
    """
    if not isinstance(reason, PutOff):
        return
    countdown = held_s(sender.app, reason.retry_after)
    publish = getattr(sender, "once_more_again", None) or (lambda seconds: again(sender, seconds).apply_async())
    try:
        publish(countdown)
        logger.info("task %s[%s]: put off for %.1f s: %s", sender.name, request.id, countdown, reason)
    except (Ignore, Reject) as exc:
        einfo.exception = exc
    except Exception as exc:
        logger.error("task %s[%s]: could not be put off: %s: %s", sender.name, request.id, reason, exc)
        if sender.acks_late:
            einfo.exception = Reject(exc, requeue=True)
        else:
            einfo.exception = reason.exc
            sender.backend.mark_as_failure(request.id, reason.exc, einfo.traceback, request=request)


def _never_retries(task: Task) -> None:
    """Of ``OutcomeUnknown``, until the process ends; ``autoretry_for`` asks the task's own ``retry``, and nobody else."""
    if getattr(task.retry, "once_more_guarded", False):
        return
    plain = task.retry

    @functools.wraps(plain)
    def retry(args: Any = None, kwargs: Any = None, exc: Any = None, *rest: Any, **options: Any) -> Any:
        error = exc or sys.exc_info()[1]
        if isinstance(error, OutcomeUnknown):
            raise error
        return plain(args, kwargs, exc, *rest, **options)

    retry.once_more_guarded = True  # type: ignore[attr-defined]
    task.retry = retry
