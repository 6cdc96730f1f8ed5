"""The start of a run: ``task_prerun`` asks the lock store its one question, ``before_start`` acts on the answer.

An exception in a signal stops nothing, so the receiver only notes what it was told; and a noted answer that is missing
(no store, or no receiver) means the outage policy. Deliveries that end here leave the stored result as it was.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import Any

from celery import Task, states
from celery._state import get_current_task
from celery.exceptions import Ignore

from celery_once_more import conflict, queues, report
from celery_once_more.again import ignores_result
from celery_once_more.exceptions import LockConflict, StoreUnavailable
from celery_once_more.put_off import put_off
from celery_once_more.run import EXEMPT, Run, message_ticket, note, noted, options_of, run_of
from celery_once_more.runtime import runtime
from celery_once_more.ticket import HEADER, RUN_HEADER, is_exempt, new_run_id

logger = logging.getLogger(__name__)


def ask(task: Task, **_: Any) -> None:
    """``task_prerun``: ask whether this delivery may run, and note the answer on the request."""
    options = getattr(task, "once_more", None)
    if options is None or task.request.is_eager or task.request.called_directly:
        return
    run = _run(task)
    if run is None:
        note(task.request, EXEMPT)
        return
    rt = runtime(task.app)
    try:
        run.answer = rt.store.start(run.ticket, run=run.run_id, lease_ms=rt.lease_ms(run.options),
                                    redelivered=run.redelivered, period_ms=rt.period_ms(run.options))  # fmt: skip
    except StoreUnavailable as exc:
        report.unavailable(run.ticket, "start", exc, "put off" if _outage_policy(task, run) == "raise" else "runs without a lock")
    note(task.request, run)


def _run(task: Task) -> Run | None:
    request = task.request
    if is_exempt(request.get(HEADER)):
        return None
    delivery = request.delivery_info or {}
    queue = queues.delivered_from(task.app, delivery.get("exchange"), delivery.get("routing_key"))
    try:
        ticket = message_ticket(task, task.once_more, request, request.args, request.kwargs, queue)
        if ticket is not None:
            _ = runtime(task.app).store  # may be nowhere, where the task itself has no lock
    except Exception as exc:  # a codec of the user's may raise anything
        logger.warning("task %s[%s] runs without a lock: %s", task.name, request.id, exc)
        return None
    if ticket is None:
        return None
    options = options_of(task, ticket)
    return Run(ticket, options, request.get(RUN_HEADER) or new_run_id(), bool(delivery.get("redelivered")))


def _outage_policy(task: Task, run: Run) -> str:
    """``raise`` (put off) or ``proceed``."""
    return run.options.on_outage or runtime(task.app).settings.on_outage


def guard(before_start: Callable[..., Any]) -> Callable[..., Any]:
    """``before_start`` of a task class, behind the gate; a user's own override keeps the gate before it."""

    @functools.wraps(before_start)
    def guarded(task: Task, task_id: str, args: Any, kwargs: Any) -> Any:
        run = run_of(task.request)
        if run is None or not run.passed:  # ``super().before_start`` of a class that was bound as well is a gate, too
            _pass(task)
        return before_start(task, task_id, args, kwargs)

    return guarded


def refusing(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` of a task class, which fails with ``LockConflict`` where the gate said so: inside the body, as autoretry wants."""

    @functools.wraps(run)
    def refused_or_run(*args: Any, **kwargs: Any) -> Any:
        task = get_current_task()
        told = run_of(task.request) if task is not None else None
        if told is not None and told.refused and told.answer is not None and told.answer.holder is not None:
            raise LockConflict(told.ticket.task, told.ticket.digest, told.answer.holder.task_id)
        return run(*args, **kwargs)

    return refused_or_run


def _pass(task: Task) -> None:
    """The gate: return, and the task runs; or end this delivery."""
    request = task.request
    if request.is_eager or request.called_directly:
        return
    run = noted(request)
    if run is None:  # nobody asked: the receiver is gone
        run = _run(task) or EXEMPT
        note(request, run)
    if run is EXEMPT:
        _mark_started(task)
        return
    assert isinstance(run, Run)
    run.passed = True
    answer = run.answer
    if answer is None:
        if _outage_policy(task, run) == "raise":
            put_off(task, run)
        run.unlocked = True
    elif answer.verdict == "run":
        report.acquired(run.ticket, "running", answer)
    elif answer.verdict == "done":
        report.redelivered(run.ticket, "ended", "of a message that is done")
        raise Ignore("this message is done")
    elif answer.holder is None:
        raise AssertionError(f"an answer that nobody expects: {answer}")
    elif answer.verdict == "busy":
        report.redelivered(run.ticket, "put off", "of a message whose run lives")
        put_off(task, run, answer.holder.remaining_ms / 1000)
    elif answer.verdict == "held":
        report.reaped(answer.lapsed)
        if run.ticket.lock.at_start:  # its lock is often busy, and soon free again: no reason to wait for a lease
            conflict.reschedule_start(task, run, answer.holder)
        report.conflict(run.ticket, answer.holder, "server", "put off: it was admitted")
        put_off(task, run, answer.holder.remaining_ms / 1000)
    elif answer.holder.task_id == run.ticket.task_id:  # the result under this id is the holder's to write
        report.redelivered(run.ticket, "ended", "under the id of the call that holds the lock")
        raise Ignore("another message with this id is on its way")
    else:
        report.reaped(answer.lapsed)
        conflict.SERVER[run.options.server](task, run, answer.holder)
    _mark_started(task)


def _mark_started(task: Task) -> None:
    """What ``task_track_started`` promises, but only once the run was let in: STARTED would overwrite a result."""
    request = task.request
    if task.once_more_track_started and not ignores_result(task, request):
        meta = {"pid": os.getpid(), "hostname": request.hostname}
        task.backend.store_result(request.id, meta, states.STARTED, request=request)
