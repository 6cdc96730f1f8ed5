"""The strategies: what becomes of a duplicate, on the publishing side and in the worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from celery import Task, states
from celery.exceptions import Ignore

from celery_once_more import report, reschedule
from celery_once_more.again import ignores_result
from celery_once_more.call import Call
from celery_once_more.exceptions import DuplicateDropped, LockConflict
from celery_once_more.locks import Holder
from celery_once_more.put_off import put_off
from celery_once_more.run import Run
from celery_once_more.runtime import runtime
from celery_once_more.ticket import TRIES_HEADER, Ticket, tries


def log_publish(call: Call, ticket: Ticket, holder: Holder) -> Any:
    """Nothing is published; the caller gets the holder's result."""
    report.conflict(ticket, holder, "client", "dropped")
    return call.task.AsyncResult(holder.task_id, duplicate=True)


def raise_publish(call: Call, ticket: Ticket, holder: Holder) -> Any:
    report.conflict(ticket, holder, "client", "LockConflict raised")
    raise LockConflict(ticket.task, ticket.digest, holder.task_id)


def reschedule_publish(call: Call, ticket: Ticket, holder: Holder) -> Any:
    """Published all the same, without the lock, for later; the caller gets its own result."""
    report.conflict(ticket, holder, "client", "rescheduled")
    if not call.eta_s > 0:
        wait_s = reschedule.countdown(call.runtime, call.options, 0, call.expires_s)
        call.message.update(countdown=wait_s, eta=None)
        report.rescheduled(ticket, "client", wait_s, 1)
    return call.publish(replace(ticket, admitted=False), tries=1)


def log_start(task: Task, run: Run, holder: Holder) -> None:
    """This delivery ends. Its result becomes REVOKED, for its chord and the rest of its chain too, so that nobody waits."""
    ticket, request = run.ticket, task.request
    report.conflict(ticket, holder, "server", "dropped")
    task.backend.mark_as_failure(
        ticket.task_id,
        DuplicateDropped(ticket.task, ticket.digest, holder.task_id),
        request=request,
        store_result=not ignores_result(task, request),
        call_errbacks=False,
        state=states.REVOKED,
    )
    raise Ignore(f"duplicate of {holder.task_id}")


def reschedule_start(task: Task, run: Run, holder: Holder) -> None:
    """Published again for later, as it is; this delivery ends."""
    report.conflict(run.ticket, holder, "server", "rescheduled")
    rt, done = runtime(task.app), tries(task.request.get(TRIES_HEADER))
    wait_s = reschedule.countdown(rt, run.options, done, rt.seconds_until(task.request.expires))
    report.rescheduled(run.ticket, "server", wait_s, done + 1)
    put_off(task, run, wait_s, tries=done + 1)


def raise_start(task: Task, run: Run, holder: Holder) -> None:
    """The task fails, from inside its body (see ``start.refusing``), so that its ``autoretry_for`` has a say."""
    report.conflict(run.ticket, holder, "server", "LockConflict raised")


CLIENT: dict[str, Callable[[Call, Ticket, Holder], Any]] = {
    "log": log_publish,
    "raise": raise_publish,
    "reschedule": reschedule_publish,
}
SERVER: dict[str, Callable[[Task, Run, Holder], None]] = {
    "log": log_start,
    "raise": raise_start,
    "reschedule": reschedule_start,
}
