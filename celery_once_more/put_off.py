"""A message that cannot start now is published again for later, with its ticket; then this delivery ends.

For late acknowledgement nothing can be lost on the way: the delivery is acknowledged after the publish, and given back
where the publish fails. For an early one the broker had its acknowledgement before we were asked.
"""

from __future__ import annotations

import logging
from typing import NoReturn

from celery import Task
from celery.exceptions import Ignore, Reject

from celery_once_more.conflict import ignores_result
from celery_once_more.exceptions import StoreUnavailable
from celery_once_more.outgoing import Reentry, reentering
from celery_once_more.run import Run
from celery_once_more.runtime import runtime

logger = logging.getLogger(__name__)


def outage_policy(task: Task) -> str:
    """``raise`` (put off) or ``proceed``: what the task says, else the setting."""
    return str(task.once_more.on_outage or runtime(task.app).settings.on_outage)


def put_off(task: Task, run: Run, remaining_ms: int | None = None) -> NoReturn:
    """End this delivery; the message comes again in ``remaining_ms`` (a whole lease where nobody knows).

    Raises:
        Ignore: it is on its way.
        Reject: it could not be published, and goes back to the queue (late acknowledgement).
        StoreUnavailable: it could not be published, and was acknowledged already: the task fails. Not for a copy of a
            message that runs, whose result is not ours to write.
    """
    request = task.request
    signature = task.signature_from_request(
        request,
        countdown=runtime(task.app).put_off_s(remaining_ms),
        retries=request.retries,
        ignore_result=ignores_result(task, request),  # Celery 5.6 forgets it
        add_to_parent=False,
    )
    ticket = run.ticket if run.ticket.admitted or run.redelivered else None
    try:
        with reentering(Reentry("put off", request.id, run, ticket=ticket)):
            signature.apply_async()
    except Exception as exc:
        logger.error("task %s[%s]: lock %s: could not be put off: %s", task.name, request.id, run.ticket.digest, exc)
        if task.acks_late:
            raise Reject(exc, requeue=True) from exc
        if run.answer is not None and run.answer.verdict == "busy":
            raise Ignore("could not be put off, while its run lives") from exc
        raise StoreUnavailable(f"task {task.name}[{request.id}] could neither have its lock nor be put off: {exc}") from exc
    raise Ignore("put off")
