"""A message that cannot start now is published again for later, with its ticket; then this delivery ends.

For late acknowledgement nothing can be lost on the way: the delivery is acknowledged after the publish, and given back
where the publish fails. For an early one the broker had its acknowledgement before we were asked.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import NoReturn

from celery import Task
from celery.exceptions import Ignore, Reject

from celery_once_more import delays, queues
from celery_once_more.again import again
from celery_once_more.exceptions import StoreUnavailable
from celery_once_more.outgoing import Reentry, reentering
from celery_once_more.run import Run
from celery_once_more.runtime import runtime
from celery_once_more.ticket import Ticket

logger = logging.getLogger(__name__)


def put_off(task: Task, run: Run, seconds: float | None = None, *, tries: int = 0) -> NoReturn:
    """End this delivery; the message comes again in ``seconds`` (a whole lease where nobody knows).

    Args:
        tries: how often the message was rescheduled, this time included.

    Raises:
        Ignore: it is on its way.
        Reject: it could not be published, and goes back to the queue (late acknowledgement).
        StoreUnavailable: it could not be published, and was acknowledged already: the task fails. Not for a copy of a
            message that runs, whose result is not ours to write.
    """
    request, rt = task.request, runtime(task.app)
    if seconds is None:
        seconds = rt.lease_ms(run.options) / 1000
    signature = again(task, delays.held_s(task.app, seconds))
    if "queue" in signature.options:  # not through its exchange, which would make copies for other queues again each time
        straight = queues.straight(task.app, signature.options["queue"])
        if straight is None and run.answer is not None and run.answer.verdict == "busy":
            raise Ignore("a copy of a broadcast, whose run lives elsewhere")
        signature.options.update(straight or {})
    ticket: Ticket | None = run.ticket
    if not run.ticket.known:  # one that the broker delivered before was let in before, perhaps
        ticket = replace(run.ticket, known=True, admitted=True) if run.redelivered else None
    try:
        with reentering(Reentry("put off", request.id, run, ticket=ticket, tries=tries)):
            signature.apply_async()
        run.left = True
    except Exception as exc:
        logger.error("task %s[%s]: lock %s: could not be put off: %s", task.name, request.id, run.ticket.digest, exc)
        if task.acks_late:
            raise Reject(exc, requeue=True) from exc
        if run.answer is not None and run.answer.verdict == "busy":
            raise Ignore("could not be put off, while its run lives") from exc
        raise StoreUnavailable(f"task {task.name}[{request.id}] could neither have its lock nor be put off: {exc}") from exc
    raise Ignore("put off")
