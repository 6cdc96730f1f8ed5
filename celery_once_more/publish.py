"""The publisher's half: whether a call is published, with which ticket, and what a failure on the way frees.

A run's own publishes (a retry, a replacement, a message put off) carry their lock on; everything else asks for one.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from celery import Task
from celery.utils import uuid

from celery_once_more import carry, conflict, queues, report
from celery_once_more.call import Call
from celery_once_more.exceptions import ArgumentsError, StoreUnavailable
from celery_once_more.locks import Answer
from celery_once_more.options import Options
from celery_once_more.outgoing import reentry
from celery_once_more.run import fresh_ticket, run_of
from celery_once_more.ticket import HEADERS, Ticket, new_series

logger = logging.getLogger(__name__)

#: options that only canvas and a worker's callbacks set: somebody else counts this call, or goes on after it
COUNTED = ("chain", "chord", "group_id", "link", "parent_id", "root_id", "reply_to")

#: seconds between two questions of a publisher that waits for a lock (``lock_timeout``), at first and in the end
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.25


def publish(task: Task, options: Options, send: Callable[..., Any], args: Any, kwargs: Any, task_id: str | None,
            message: dict[str, Any]) -> Any:  # fmt: skip
    """Everything that ``UniqueTask.apply_async`` does outside eager mode."""
    message = _without_old_tickets(message)
    call = Call(task=task, options=options, args=args or (), kwargs=kwargs or {}, task_id=task_id or uuid(),
                message=message, send=send)  # fmt: skip
    again = reentry()
    if again is not None and again.why != "replace":
        if carry.is_own_message(call.task_id):
            return carry.carry_on(call, again)
        again = None  # published by somebody's receiver, in the middle of a retry
    if options.lock is None:
        return call.publish(None, exempt=task.once_more.lock is not None)
    try:
        ticket = _ticket(call)
    except ArgumentsError:
        raise
    except TypeError:
        # the function does not take these arguments: Celery says so, here or (typing=False) in the worker
        return call.publish(None)
    if again is None:
        return _ask(call, ticket)
    run = again.run
    if run is not None and run.holds and again.task_id == call.task_id and ticket.digest == run.ticket.digest:
        assert run.retry_ticket is not None
        return carry.move_on(call, run.retry_ticket, run)
    return _ask(call, ticket, must_run=True)


def check(task: Task, options: Options, args: Any, kwargs: Any, message: dict[str, Any]) -> None:
    """Raise what is wrong with a call that is to be published later; no service is asked.

    Raises:
        ArgumentsError: an argument that counts has no stable JSON form.
        ConfigurationError: nobody can say where the locks live.
        celery.exceptions.QueueNotFound: as for a publish.
    """
    call = Call(task=task, options=options, args=args or (), kwargs=kwargs or {}, task_id="",
                message=_without_old_tickets(dict(message)), send=task.apply_async)  # fmt: skip
    _ = call.runtime.store  # made here, if nothing has until now
    try:
        _ticket(call)
    except ArgumentsError:
        raise
    except TypeError:
        pass  # with typing=False arguments that do not fit are the worker's to refuse


def _ticket(call: Call) -> Ticket:
    routed = queues.resolve(call.task, call.args, call.kwargs, call.message)
    call.message["router"] = queues.Resolved(routed)
    return fresh_ticket(call.task, call.options, call.args, call.kwargs, task_id=call.task_id,
                        queue=queues.published_to(call.task.app, routed), series=new_series())  # fmt: skip


def _ask(call: Call, ticket: Ticket, *, must_run: bool = False) -> Any:
    """Take the lock and publish; or be a duplicate."""
    if not ticket.lock.at_publish:
        return call.publish(ticket)
    try:
        answer = _acquire(call, ticket, waits_s=0.0 if must_run else call.options.timeout)
    except StoreUnavailable as exc:
        return _outage(call, ticket, exc, must_run)
    if answer.verdict == "refused":
        assert answer.holder is not None
        report.reaped(answer.lapsed)
        if must_run:  # never dropped: its ticket lets it wait at its start for its turn
            report.conflict(ticket, answer.holder, "client", "published, to wait at its start")
            return call.publish(ticket)
        if call.options.client != "reschedule" and any(call.message.get(option) for option in COUNTED):
            report.conflict(ticket, answer.holder, "client", "published without a ticket, to be settled at its start")
            return call.publish(None)
        return conflict.CLIENT[call.options.client](call, ticket, answer.holder)
    if answer.stop:
        ticket = replace(ticket, stop=answer.stop)
    result = call.publish_or_release(ticket)
    report.acquired(ticket, "waiting", answer)
    return result


def _acquire(call: Call, ticket: Ticket, waits_s: float) -> Answer:
    """Ask for the lock, for as long as its publisher waits; never for one that the asking run itself holds.

    Raises:
        StoreUnavailable: the store did not answer.
    """
    call.runtime.settle_doubts()
    until, pause = time.monotonic() + waits_s, FIRST_PAUSE
    while True:
        answer = call.runtime.store.acquire(ticket, wait_ms=call.wait_ms, period_ms=call.period_ms, place=call.place(ticket))
        if answer.verdict != "refused" or _is_own_duplicate(call, ticket):
            return answer
        left = until - time.monotonic()
        if left <= 0:
            return answer
        report.reaped(answer.lapsed)
        time.sleep(min(left, pause * random.uniform(0.5, 1.0)))
        pause = min(2 * pause, LONGEST_PAUSE)


def _outage(call: Call, ticket: Ticket, exc: StoreUnavailable, must_run: bool) -> Any:
    policy = call.options.on_outage or call.runtime.settings.on_outage
    raises = policy == "raise" and not must_run
    report.unavailable(ticket, "acquire", exc, "StoreUnavailable raised" if raises else "published without a lock")
    if must_run:
        return call.publish(ticket)
    call.runtime.doubtful.append(ticket)
    if not raises:
        return call.publish(None)
    try:
        call.runtime.settle_doubts()
    except StoreUnavailable:
        pass  # the next publish does it
    raise exc


def _without_old_tickets(message: dict[str, Any]) -> dict[str, Any]:
    headers = message.get("headers")
    if not headers or not HEADERS & headers.keys():
        return message
    return {**message, "headers": {k: v for k, v in headers.items() if k not in HEADERS}}


def _is_own_duplicate(call: Call, ticket: Ticket) -> bool:
    """Whether a run publishes the call that it is, which gets a warning."""
    running = call.task.app.current_worker_task
    run = run_of(running.request) if running else None
    if run is None or not run.holds or run.ticket.digest != ticket.digest:
        return False
    logger.warning(
        "task %s[%s] publishes its own lock %s from inside its run, and is a duplicate of itself: "
        "use retry() to run it again, current_lock.release() before, the lock until_executing, or publish after it has ended",
        ticket.task, run.ticket.task_id, ticket.digest,
    )  # fmt: skip
    return True
