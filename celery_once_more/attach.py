"""``before_task_publish``: every message of a unique task leaves with its ticket, or with none that is not its own.

Publishes through ``apply_async`` were decided before; those that went past it, by name, ask for their lock here. The
start is the authority over these; a lock taken here already spares most duplicates their trip. The signal knows neither
the app nor how the publish ends: both are learned around the app's own ``send_task``.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from celery import Celery, Task

from celery_once_more import queues, report
from celery_once_more.exceptions import ArgumentsError, StoreUnavailable
from celery_once_more.outgoing import envelope_for
from celery_once_more.run import fresh_ticket
from celery_once_more.runtime import runtime
from celery_once_more.ticket import HEADER, HEADERS, TRIES_HEADER, Ticket, new_series

logger = logging.getLogger(__name__)


@dataclass
class Sending:
    """One ``send_task`` of an app, while it is under way."""

    app: Celery
    options: Mapping[str, Any]
    #: what the receiver took the lock with
    ticket: Ticket | None = None


_sending: ContextVar[Sending | None] = ContextVar("once_more_sending", default=None)


def watched(app: Celery, send_task: Callable[..., Any]) -> Callable[..., Any]:
    """``app.send_task``, with a lock that its receiver took freed where the publish fails."""

    @functools.wraps(send_task)
    def send(*args: Any, **kwargs: Any) -> Any:
        sending = Sending(app, kwargs)
        token = _sending.set(sending)
        try:
            return send_task(*args, **kwargs)
        except BaseException:
            if sending.ticket is not None:
                runtime(app).give_back(sending.ticket)
            raise
        finally:
            _sending.reset(token)

    return send


def before_publish(sender: str, headers: dict[str, Any], body: Any, exchange: Any = None, routing_key: Any = None,
                   **_: Any) -> None:  # fmt: skip
    """``before_task_publish``: attach the ticket; take the lock for a publish that went past ``apply_async`` by name."""
    task_id, sending = headers.get("id"), _sending.get()
    if task_id is None or sending is None:
        return  # protocol 1 has no place for a ticket; and what no app of ours sends is not ours
    envelope = envelope_for(sender, task_id)
    if envelope is not None:
        _strip(headers)
        if envelope.header is not None:
            headers[HEADER] = envelope.header
        if envelope.tries:
            headers[TRIES_HEADER] = envelope.tries
        return
    task = sending.app._tasks.get(sender)
    if getattr(task, "once_more", None) is None:
        return
    _strip(headers)
    if task.once_more.lock is not None:
        queue = queues.delivered_from(sending.app, getattr(exchange, "name", exchange), routing_key)
        sending.ticket = _take(task, headers, body, queue, sending.options)


def _strip(headers: dict[str, Any]) -> None:
    """What another message, or somebody else, has put there."""
    for name in HEADERS:
        headers.pop(name, None)


def _take(task: Task, headers: dict[str, Any], body: Any, queue: str | None, sent_with: Mapping[str, Any]) -> Ticket | None:
    """The ticket of a lock that was taken."""
    rt, options = runtime(task.app), task.once_more
    try:
        ticket = fresh_ticket(task, options, body[0], body[1], task_id=headers["id"], queue=queue, series=new_series())
        if not ticket.lock.at_publish:
            headers[HEADER] = ticket.to_header()
            return None
        eta_s, expires_s = rt.seconds_until(headers.get("eta")) or 0.0, rt.seconds_until(headers.get("expires"))
        answer = rt.store.acquire(ticket, wait_ms=rt.wait_ms(options, eta_s, expires_s), period_ms=rt.period_ms(options, eta_s),
                                  place=rt.place(queue, eta_s, by=sent_with))  # fmt: skip
    except (ArgumentsError, TypeError, StoreUnavailable) as exc:
        logger.warning("task %s[%s], published by name, goes without a ticket: %s", task.name, headers["id"], exc)
        return None
    if answer.holder is not None:
        report.reaped(answer.lapsed)
        report.conflict(ticket, answer.holder, "client", "published by name without a ticket, to be settled at its start")
        return None
    ticket = replace(ticket, stop=answer.stop)
    headers[HEADER] = ticket.to_header()
    report.acquired(ticket, "waiting", answer)
    return ticket
