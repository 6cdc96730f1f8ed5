"""One start of one message: what it asked the lock store, what it was told, and what it has become since.

It hangs on Celery's request object, so that everything that sees the request (hooks, signals, the publisher of a retry)
sees the run, and nothing outlives it. A message without a ticket gets one made up here, the same at every delivery.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from celery import Task

from celery_once_more import digest as digests
from celery_once_more import ticket as tickets
from celery_once_more.exceptions import ArgumentsError, ConfigurationError
from celery_once_more.locks import Answer
from celery_once_more.options import Options
from celery_once_more.ticket import Ticket

logger = logging.getLogger(__name__)

_ATTRIBUTE = "_once_more"


@dataclass
class Run:
    ticket: Ticket
    #: of its task, with what its call said over them
    options: Options
    run_id: str
    redelivered: bool
    #: what the store said; ``None``: it did not answer
    answer: Answer | None = None
    #: the gate before the body has acted on that answer
    passed: bool = False
    #: the run goes on without a lock (outage policy ``proceed``)
    unlocked: bool = False
    #: the hop of a retry that was published before the lock could wait for it: while the body goes on
    #: (``retry(throw=False)``), or while the store did not answer; the end of the run makes up for it
    next_hop: int | None = None
    #: it was revoked while it ran: its message does not come again
    revoked: bool = False
    #: the lock went on to another message, or is known to be another run's: the end of this run has nothing to free
    left: bool = False

    @property
    def holds(self) -> bool:
        return self.answer is not None and self.answer.verdict == "run"

    @property
    def refused(self) -> bool:
        """Another call is in the way, and the server strategy decides what becomes of this one."""
        return self.answer is not None and self.answer.verdict == "conflict"

    @property
    def waits(self) -> bool:
        """It was not let in, and its lock of the publish still waits."""
        return self.refused and self.ticket.admitted

    @property
    def retry_ticket(self) -> Ticket | None:
        """What a retry of this run carries on; ``None`` where it has nothing to carry: it was not let in."""
        if self.holds or (self.unlocked and self.ticket.known):
            return replace(self.ticket, admitted=True, known=True, ran=True)
        return self.ticket if self.ticket.known else None


#: a run that asks nothing: its call was published with ``lock=None``
EXEMPT = object()


def note(request: Any, run: Run | object) -> None:
    setattr(request, _ATTRIBUTE, run)


def noted(request: Any) -> Run | object | None:
    """The run of this request, :data:`EXEMPT`, or ``None`` where nobody has asked yet."""
    return vars(request).get(_ATTRIBUTE) if request is not None else None


def run_of(request: Any) -> Run | None:
    found = noted(request)
    return found if isinstance(found, Run) else None


def fresh_ticket(task: Task, options: Options, args: Sequence[Any], kwargs: Mapping[str, Any], *, task_id: str,
                 queue: str | None, series: int, hop: int = 0, known: bool = True) -> Ticket:  # fmt: skip
    """Compute the digest of a call and name one message of it.

    Raises:
        ArgumentsError: an argument that counts has no stable JSON form.
        TypeError: the task's function does not take these arguments.
    """
    assert options.lock is not None
    try:
        counted = _counted(task, options, args, kwargs)
    except digests.UnstableArgument as exc:
        where, why = exc.args
        raise ArgumentsError(task.name, where, f"has no stable JSON form: {why}") from exc.__cause__
    return Ticket(
        task=task.name,
        task_id=task_id,
        digest=digests.digest(
            scope=options.scope or task.name, queue=None if options.across_queues else queue, arguments=counted
        ),
        lock=options.lock,
        series=series,
        hop=hop,
        queue=queue,
        admitted=known and options.lock.at_publish,
        known=known,
        said=options.said,
    )


def _counted(task: Task, options: Options, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    dump_models = getattr(task, "_dump_pydantic_arguments", None)
    if dump_models is not None:  # what goes over the wire is the dumped form
        args, kwargs = dump_models(args, kwargs)
    bound = digests.bind(task.once_more_signature(), args, kwargs)
    if callable(options.lock_args):
        return digests.canonical(digests.choose(options.lock_args, bound), digests.CHOSEN)
    chosen = digests.select(bound, options.lock_args)
    more = chosen.pop(digests.MORE, None) if options.lock_args is None else None
    counted: dict[str, Any] = {name: digests.canonical(value, name) for name, value in chosen.items()}
    if more is not None:
        counted[digests.MORE] = {name: digests.canonical(value, name) for name, value in more.items()}
    return counted


def message_ticket(task: Task, options: Options, message: Any, args: Sequence[Any], kwargs: Mapping[str, Any],
                   queue: str | None) -> Ticket | None:  # fmt: skip
    """The ticket of a delivered message, or one made up for it; ``None`` where it asks for no lock.

    ``message``: anything with ``get``: the request's headers in the main process, the request itself in the child.

    Raises:
        ArgumentsError, TypeError: it has no ticket, and no digest can be computed.
    """
    found = tickets.read(message.get(tickets.HEADER), task=task.name, task_id=message.get("id"))
    if found is not None or options.lock is None:
        return found
    return fresh_ticket(
        task,
        options,
        args,
        kwargs,
        task_id=message.get("id"),
        queue=queue,
        series=tickets.assumed_series(message.get("id")),
        hop=message.get("retries") or 0,
        known=False,
    )


def options_of(task: Task, ticket: Ticket) -> Options:
    """What counts for a message with this ticket; what the ticket says and nobody understands is left out, with a warning."""
    options: Options = task.once_more
    try:
        return options.for_message(task, ticket.lock, ticket.said)
    except ConfigurationError as exc:
        logger.warning("task %s[%s]: %s; what the task says counts", task.name, ticket.task_id, exc)
        return options.for_message(task, ticket.lock, {})
