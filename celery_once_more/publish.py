"""The publisher's half: whether a call is published, with which ticket, and what a failure on the way frees.

A run's own publishes (a retry, a replacement, a message put off) carry their lock on; everything else asks for one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from celery import Task, current_app
from celery.exceptions import Ignore
from celery.utils import uuid

from celery_once_more import conflict, queues, report
from celery_once_more.exceptions import ArgumentsError, StoreUnavailable
from celery_once_more.options import Options
from celery_once_more.outgoing import Reentry, carrying, envelope_for, reentry
from celery_once_more.run import fresh_ticket, run_of
from celery_once_more.runtime import Runtime, runtime
from celery_once_more.ticket import HEADER, RUN_HEADER, Ticket, new_series, read

logger = logging.getLogger(__name__)

#: options that only canvas and a worker's callbacks set: somebody else counts this call, or goes on after it
COUNTED = ("chain", "chord", "group_id", "link", "parent_id", "root_id", "reply_to")
#: a message published by name has this long to be seen in the broker; also a retry between its requeue and its confirm
HANDOVER_MS = 30_000


class RunOutlived(Ignore):
    """A retry of a run that has no say any more: a newer run of its call lives, or its call is over."""


@dataclass(frozen=True, kw_only=True)
class Call:
    task: Task
    options: Options
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    task_id: str
    #: what the caller said of the message: countdown, queue, headers, …
    message: Mapping[str, Any]
    #: Celery's own ``apply_async``, which still wants the id and the message's options
    send: Callable[..., Any]

    @property
    def runtime(self) -> Runtime:
        return runtime(self.task.app)

    @property
    def wait_ms(self) -> int:
        countdown, eta = self.message.get("countdown"), self.message.get("eta")
        eta_s = self.runtime.seconds_until(countdown if countdown else eta) or 0.0
        expires = self.message.get("expires", self.task.expires)
        return self.runtime.wait_ms(eta_s, self.runtime.seconds_until(expires))

    def publish(self, ticket: Ticket | None, *, exempt: bool = False) -> Any:
        with carrying(self.task.name, self.task_id, ticket, exempt=exempt):
            return self.send(task_id=self.task_id, **self.message)


def publish(task: Task, options: Options, send: Callable[..., Any], args: Any, kwargs: Any, task_id: str | None,
            message: dict[str, Any]) -> Any:  # fmt: skip
    """Everything that ``UniqueTask.apply_async`` does outside eager mode."""
    message = _without_old_tickets(message)
    call = Call(task=task, options=options, args=args or (), kwargs=kwargs or {}, task_id=task_id or uuid(),
                message=message, send=send)  # fmt: skip
    again = reentry()
    if again is not None and again.why != "replace":
        if again.task_id == call.task_id:
            return _carry_on(call, again)
        again = None  # published by somebody's receiver, in the middle of a retry
    if options.lock is None:
        return call.publish(None, exempt=task.once_more.lock is not None)
    try:
        call, ticket = _ticketed(call)
    except ArgumentsError:
        raise
    except TypeError:
        # the function does not take these arguments: Celery says so, here or (typing=False) in the worker
        return call.publish(None)
    if again is not None:
        return _replacement(call, again, ticket)
    return _ask(call, ticket)


def _ticketed(call: Call) -> tuple[Call, Ticket]:
    routed = queues.resolve(call.task, call.args, call.kwargs, call.message)
    ticket = fresh_ticket(call.task, call.options, call.args, call.kwargs, task_id=call.task_id,
                          queue=queues.published_to(call.task.app, routed), series=new_series())  # fmt: skip
    return replace(call, message={**call.message, "router": queues.Resolved(routed)}), ticket


def _ask(call: Call, ticket: Ticket, *, must_run: bool = False) -> Any:
    """Take the lock and publish; or be a duplicate."""
    store = call.runtime.store
    try:
        answer = store.acquire(ticket, wait_ms=call.wait_ms)
    except StoreUnavailable as exc:
        return _outage(call, ticket, exc, must_run)
    if answer.verdict == "refused":
        assert answer.holder is not None
        report.reaped(answer.lapsed)
        _warn_of_own_digest(call, ticket)
        if must_run:  # never dropped: its ticket lets it wait at its start for its turn
            report.conflict(ticket, answer.holder, "client", "published, to wait at its start")
            return call.publish(ticket)
        if any(call.message.get(option) for option in COUNTED):
            report.conflict(ticket, answer.holder, "client", "published without a ticket, to be settled at its start")
            return call.publish(None)
        return conflict.CLIENT[call.options.client](call.task, ticket, answer.holder)
    try:
        result = call.publish(ticket)
    except BaseException:
        _release(call.runtime, ticket, "publish failed")
        raise
    report.acquired(ticket, "waiting", answer)
    return result


def _outage(call: Call, ticket: Ticket, exc: StoreUnavailable, must_run: bool) -> Any:
    policy = call.options.on_outage or call.runtime.settings.on_outage
    if policy == "raise" and not must_run:
        report.unavailable(ticket, "acquire", exc, "StoreUnavailable raised")
        try:  # the reply may have been lost after the lock was taken
            call.runtime.store.release(ticket)
        except StoreUnavailable:
            pass
        raise exc
    report.unavailable(ticket, "acquire", exc, "published without a lock")
    return call.publish(ticket if must_run else None)


def _carry_on(call: Call, again: Reentry) -> Any:
    """A retry, or a message put off: the same call, in its next or in the same message."""
    if again.why == "put off":
        return call.publish(again.ticket, exempt=again.exempt)
    run = again.run
    ticket = run.retry_ticket if run is not None else None
    if run is None or ticket is None:
        return call.publish(None, exempt=again.exempt)
    if again.body_goes_on:
        run.next_hop = (run.next_hop or ticket.hop) + 1
        return call.publish(ticket.at_hop(run.next_hop))
    return _move_on(call, ticket, run.run_id if run.holds else None)


def _replacement(call: Call, again: Reentry, ticket: Ticket) -> Any:
    """``Task.replace``: one signature with the digest of the run carries the lock on; anything else must at least run."""
    run = again.run
    if run is not None and run.holds and again.task_id == call.task_id and ticket.digest == run.ticket.digest:
        return _move_on(call, run.ticket, run.run_id)
    return _ask(call, ticket, must_run=True)


def _move_on(call: Call, ticket: Ticket, run_id: str | None) -> Any:
    """Requeue, publish, confirm: at every moment either message of the call is good, and one of them is in the broker."""
    store, following = call.runtime.store, ticket.at_hop(ticket.hop + 1)
    moved = run_id is not None
    if run_id is not None:
        try:
            if not store.requeue(ticket, run=run_id, hop=following.hop, wait_ms=HANDOVER_MS):
                report.lost(ticket, "its retry is not published, another run goes on")
                raise RunOutlived(f"lock {ticket.digest} was lost")
        except StoreUnavailable as exc:
            moved = False
            report.unavailable(ticket, "requeue", exc, "its next message is published all the same")
    try:
        result = call.publish(following)
    except BaseException:
        _release(call.runtime, following, "publish failed")
        raise
    if moved:
        try:
            store.confirm(ticket, hop=following.hop, wait_ms=call.wait_ms)
        except StoreUnavailable as exc:
            report.unavailable(ticket, "confirm", exc, "both of its messages stay good")
    return result


def _release(rt: Runtime, ticket: Ticket, reason: str) -> None:
    try:
        if rt.store.release(ticket):
            report.released(ticket, reason)
    except StoreUnavailable as exc:
        report.unavailable(ticket, "release", exc, "the lock stays until its queue lease ends")


def _without_old_tickets(message: dict[str, Any]) -> dict[str, Any]:
    headers = message.get("headers")
    if not headers or not {HEADER, RUN_HEADER} & headers.keys():
        return message
    return {**message, "headers": {k: v for k, v in headers.items() if k not in (HEADER, RUN_HEADER)}}


def _warn_of_own_digest(call: Call, ticket: Ticket) -> None:
    running = call.task.app.current_worker_task
    run = run_of(running.request) if running else None
    if run is not None and run.holds and run.ticket.digest == ticket.digest:
        logger.warning(
            "task %s[%s] publishes its own lock %s from inside its run, and is a duplicate of itself: "
            "use retry() to run it again, or publish after it has ended",
            ticket.task, run.ticket.task_id, ticket.digest,
        )  # fmt: skip


def before_publish(sender: str, headers: dict[str, Any], body: Any, exchange: Any = None, routing_key: Any = None,
                   **_: Any) -> None:  # fmt: skip
    """``before_task_publish``: attach the ticket; take the lock for a publish that went past ``apply_async`` by name."""
    task_id = headers.get("id")
    if not isinstance(task_id, str):
        return  # protocol 1 has no place for a ticket
    envelope = envelope_for(sender, task_id)
    if envelope is not None:
        headers.pop(HEADER, None)
        if envelope.header is not None:
            headers[HEADER] = envelope.header
        return
    task = current_app.tasks.get(sender) if current_app.finalized else None
    options = getattr(task, "once_more", None)
    if task is None or options is None:
        return
    headers.pop(HEADER, None)
    if options.lock is not None:
        _by_name(task, options, headers, body, queues.delivered_from(task.app, getattr(exchange, "name", exchange), routing_key))


def _by_name(task: Task, options: Options, headers: dict[str, Any], body: Any, queue: str | None) -> None:
    """The start is the authority over these; taking the lock here already spares most duplicates their trip."""
    rt = runtime(task.app)
    try:
        ticket = fresh_ticket(task, options, body[0], body[1], task_id=headers["id"], queue=queue, series=new_series())
        answer = rt.store.acquire(ticket, wait_ms=HANDOVER_MS)
    except (ArgumentsError, TypeError, StoreUnavailable) as exc:
        logger.warning("task %s[%s], published by name, goes without a ticket: %s", task.name, headers["id"], exc)
        return
    if answer.holder is not None:
        report.reaped(answer.lapsed)
        report.conflict(ticket, answer.holder, "client", "published by name without a ticket, to be settled at its start")
        return
    headers[HEADER] = ticket.to_header()
    report.acquired(ticket, "waiting", answer)


def after_publish(sender: str, headers: Mapping[str, Any], **_: Any) -> None:
    """``after_task_publish``: a message by name is in the broker, so its lock may wait as long as it does."""
    task_id = headers.get("id")
    if HEADER not in headers or not isinstance(task_id, str) or envelope_for(sender, task_id) is not None:
        return
    task = current_app.tasks.get(sender) if current_app.finalized else None
    ticket = read(headers[HEADER], task=sender, task_id=task_id)
    if getattr(task, "once_more", None) is None or ticket is None:
        return
    rt = runtime(current_app)
    eta_s, expires_s = rt.seconds_until(headers.get("eta")) or 0.0, rt.seconds_until(headers.get("expires"))
    try:
        rt.store.confirm(ticket, hop=ticket.hop, wait_ms=rt.wait_ms(eta_s, expires_s))
    except StoreUnavailable as exc:
        report.unavailable(ticket, "confirm", exc, "its lock ends within half a minute, its message runs all the same")
