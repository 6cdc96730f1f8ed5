"""``before_task_publish``: every message of a unique task leaves with its ticket, or with none that is not its own.

Publishes through ``apply_async`` were decided before; those that went past it, by name, ask for their lock here. The
start is the authority over these; a lock taken here already spares most duplicates their trip.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from celery import Task, current_app

from celery_once_more import queues, report
from celery_once_more.call import HANDOVER_MS
from celery_once_more.exceptions import ArgumentsError, StoreUnavailable
from celery_once_more.options import Options
from celery_once_more.outgoing import envelope_for
from celery_once_more.run import fresh_ticket
from celery_once_more.runtime import runtime
from celery_once_more.ticket import HEADER, new_series, read

logger = logging.getLogger(__name__)


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
