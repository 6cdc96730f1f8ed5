"""Asking for a lock without publishing, and freeing exactly the holder that was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from celery import Task

from celery_once_more import queues, report
from celery_once_more.exceptions import ConfigurationError
from celery_once_more.locks import Held
from celery_once_more.run import fresh_ticket
from celery_once_more.runtime import runtime
from celery_once_more.ticket import Ticket


@dataclass(frozen=True, kw_only=True)
class LockInfo:
    """Who holds a lock, as it was when it was asked."""

    task: str
    #: 22 characters that name the lock
    digest: str
    #: task id of the call that holds it
    holder: str
    #: ``"waiting"``, ``"running"``, or ``"kept"`` until the end of its period
    phase: str
    #: when it was published, or its last run began; on the store's clock, to the second
    since: datetime
    #: seconds until its deadline, unless that is moved on
    remaining: float
    #: fencing token of its last run; ``None``: it has not run
    token: int | None
    _held: Held = field(repr=False)


def lock_info(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> LockInfo | None:
    """The holder that a publish of these arguments would meet; for a lock taken at the start, the run in its way.

    Raises:
        ConfigurationError: the task has no lock.
        ArgumentsError, TypeError: the call has no digest.
        StoreUnavailable: the store did not answer.
    """
    held = runtime(task.app).store.holder(ticket_of(task, args, kwargs))
    if held is None:
        return None
    return LockInfo(
        task=task.name,
        digest=held.digest,
        holder=held.task_id,
        phase=held.phase,
        since=datetime.fromtimestamp(held.since, timezone.utc),
        remaining=held.remaining_ms / 1000,
        token=held.token or None,
        _held=held,
    )


def ticket_of(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Ticket:
    """What a publish of these arguments would ask the store with; no service is asked.

    Raises:
        ConfigurationError, ArgumentsError, TypeError: as :func:`lock_info`.
    """
    if task.once_more.lock is None:
        raise ConfigurationError(f"task {task.name!r} has no lock; give it lock=…")
    queue = queues.published_to(task.app, queues.resolve(task, args, kwargs, {}))
    return fresh_ticket(task, task.once_more, args, kwargs, task_id="", queue=queue, series=0)


def release_lock(task: Task, info: LockInfo) -> bool:
    """Free exactly that holder; ``False`` where it is not any more as it was seen. A run goes on, without its lock.

    Raises:
        StoreUnavailable: the store did not answer.
    """
    freed = runtime(task.app).store.free(info._held)
    if freed:
        report.freed(info.task, info.holder, info.digest, "by hand")
    return freed
