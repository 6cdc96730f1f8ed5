"""A publish that waits for a commit: what is wrong with the call is raised where it was written, and nothing where it is sent.

What keeps it until the commit is the database layer's own: ``django``, ``sqlalchemy``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

from celery import Task
from celery.exceptions import SoftTimeLimitExceeded
from celery.utils import uuid

from celery_once_more.exceptions import LockConflict
from celery_once_more.task import UniqueTask

logger = logging.getLogger(__name__)


def prepare(task: Task, args: Any, kwargs: Any, options: dict[str, Any]) -> Callable[[], None]:
    """Check a call of any Celery task, and return what publishes it.

    Its arguments are copied: what a caller does to them afterwards changes as little as it does after ``delay``. In eager
    mode the hook is Celery's ``apply_async`` as it stands, with the caller's own objects and errors.

    Raises:
        ConfigurationError: an option given with the call, or a setting of the lock store, is wrong.
        ArgumentsError: an argument that counts has no stable JSON form.
        TypeError: the task does not take these arguments, or one of them cannot be copied.
    """
    header = getattr(task, "__header__", None)
    if task.typing and header is not None:
        header(*(args or ()), **(kwargs or {}))
    if isinstance(task, UniqueTask):
        task.once_more_check(args, kwargs, options)
    if task.app.conf["task_always_eager"]:
        return partial(task.apply_async, args, kwargs, **options)
    options = {**options, "task_id": options.get("task_id") or uuid()}
    return partial(_publish, task, *deepcopy((args, kwargs)), options)


def _publish(task: Task, args: Any, kwargs: Any, options: dict[str, Any]) -> None:
    """A conflict and an outage have had their signal when they come here; other hooks and the committer hear of neither."""
    said = "task %s[%s] is not published after the commit: %s"
    try:
        task.apply_async(args, kwargs, **options)
    except SoftTimeLimitExceeded:
        raise  # meant for the run that commits here: a publish that swallowed it would leave that run to be killed
    except LockConflict as exc:
        logger.warning(said, task.name, options["task_id"], exc)
    except Exception as exc:
        logger.error(said, task.name, options["task_id"], exc, exc_info=True)
