"""What the next publish of a task id is to carry, told from the code that decides to the code that publishes.

Celery gives no way to hand something through ``apply_async`` -> ``send_task`` -> ``before_task_publish`` but the caller's
own options; a context variable does, in threads and greenlets as well. It is matched by task and id, so that whatever
else is published meanwhile (a receiver's own tasks, say) is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from celery_once_more.run import Run
from celery_once_more.ticket import EXEMPT, Ticket


@dataclass(frozen=True)
class Envelope:
    """The publish of this task id carries this header (``None``: no ticket)."""

    task: str
    task_id: str
    header: Mapping[str, Any] | None
    #: how often the message was rescheduled
    tries: int = 0


@dataclass(frozen=True)
class Reentry:
    """Publishes of this task id come from inside a run, which carries its lock on."""

    #: "retry", "replace" or "put off"
    why: str
    task_id: str
    run: Run | None
    #: the body goes on beside the message (``retry(throw=False)``)
    body_goes_on: bool = False
    #: "put off": the ticket to carry, and how often the message was rescheduled
    ticket: Ticket | None = None
    tries: int = 0
    #: the run's call was published with ``lock=None``
    exempt: bool = False


_envelope: ContextVar[Envelope | None] = ContextVar("once_more_envelope", default=None)
_reentry: ContextVar[Reentry | None] = ContextVar("once_more_reentry", default=None)


@contextmanager
def carrying(task: str, task_id: str, ticket: Ticket | None, *, exempt: bool = False, tries: int = 0) -> Iterator[None]:
    header = ticket.to_header() if ticket is not None else EXEMPT if exempt else None
    token = _envelope.set(Envelope(task, task_id, header, tries))
    try:
        yield
    finally:
        _envelope.reset(token)


@contextmanager
def reentering(reentry: Reentry) -> Iterator[None]:
    token = _reentry.set(reentry)
    try:
        yield
    finally:
        _reentry.reset(token)


def envelope_for(task: str, task_id: str) -> Envelope | None:
    found = _envelope.get()
    return found if found is not None and (found.task, found.task_id) == (task, task_id) else None


def reentry() -> Reentry | None:
    return _reentry.get()
