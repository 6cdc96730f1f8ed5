"""The strategies: what becomes of a duplicate, on the publishing side and in the worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Task, states
from celery.exceptions import Ignore

from celery_once_more import report
from celery_once_more.exceptions import DuplicateDropped, LockConflict
from celery_once_more.locks import Holder
from celery_once_more.ticket import Ticket


def log_publish(task: Task, ticket: Ticket, holder: Holder) -> Any:
    """Nothing is published; the caller gets the holder's result."""
    report.conflict(ticket, holder, "client", "dropped")
    return task.AsyncResult(holder.task_id, duplicate=True)


def raise_publish(task: Task, ticket: Ticket, holder: Holder) -> Any:
    report.conflict(ticket, holder, "client", "LockConflict raised")
    raise LockConflict(ticket.task, ticket.digest, holder.task_id)


def log_start(task: Task, ticket: Ticket, holder: Holder) -> None:
    """This delivery ends. Its result becomes REVOKED, for its chord and the rest of its chain too, so that nobody waits."""
    report.conflict(ticket, holder, "server", "dropped")
    request = task.request
    task.backend.mark_as_failure(
        ticket.task_id,
        DuplicateDropped(ticket.task, ticket.digest, holder.task_id),
        request=request,
        store_result=not ignores_result(task, request),
        call_errbacks=False,
        state=states.REVOKED,
    )
    raise Ignore(f"duplicate of {holder.task_id}")


def raise_start(task: Task, ticket: Ticket, holder: Holder) -> None:
    """The task fails, from inside its body (see ``start.refusing``), so that its ``autoretry_for`` has a say."""
    report.conflict(ticket, holder, "server", "LockConflict raised")


def ignores_result(task: Task, request: Any) -> bool:
    """What the call says, else what the task says: ``Context`` has a default that looks like an answer."""
    said = vars(request).get("ignore_result")
    return bool(task.ignore_result if said is None else said)


CLIENT: dict[str, Callable[[Task, Ticket, Holder], Any]] = {"log": log_publish, "raise": raise_publish}
SERVER: dict[str, Callable[[Task, Ticket, Holder], None]] = {"log": log_start, "raise": raise_start}
