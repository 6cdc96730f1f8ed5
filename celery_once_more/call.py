"""One publish of one task, on its way from ``apply_async`` to the broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from celery import Task

from celery_once_more.locks import Place
from celery_once_more.options import Options
from celery_once_more.outgoing import carrying
from celery_once_more.runtime import Runtime, runtime
from celery_once_more.ticket import Ticket

#: a retry has this long from its requeue to its confirm
HANDOVER_MS = 30_000


@dataclass(frozen=True, kw_only=True)
class Call:
    task: Task
    options: Options
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    task_id: str
    #: what the caller said of the message: countdown, queue, headers, …; then also where it was routed
    message: dict[str, Any]
    #: Celery's own ``apply_async``, which still wants the id and the message's options
    send: Callable[..., Any]

    @cached_property
    def runtime(self) -> Runtime:
        return runtime(self.task.app)

    @cached_property
    def eta_s(self) -> float:
        return self.runtime.seconds_until(self.message.get("countdown") or self.message.get("eta")) or 0.0

    @property
    def expires_s(self) -> float | None:
        return self.runtime.seconds_until(self.message.get("expires", self.task.expires))

    @property
    def wait_ms(self) -> int:
        return self.runtime.wait_ms(self.options, self.eta_s, self.expires_s)

    def place(self, ticket: Ticket) -> Place | None:
        """Where its message can be looked for."""
        return self.runtime.place(ticket.queue, self.eta_s, by=self.message)

    @property
    def period_ms(self) -> int:
        return self.runtime.period_ms(self.options, self.eta_s)

    def publish(self, ticket: Ticket | None, *, exempt: bool = False, tries: int = 0) -> Any:
        """Publish with this ticket (none: ``None``).

        Args:
            exempt: its run shall ask for no lock.
            tries: how often the message was rescheduled.
        """
        with carrying(self.task.name, self.task_id, ticket, exempt=exempt, tries=tries):
            return self.send(task_id=self.task_id, **self.message)

    def publish_or_release(self, ticket: Ticket) -> Any:
        """Publish with a lock that was taken; whatever stops the publish, frees it, and goes on to the caller."""
        try:
            return self.publish(ticket)
        except BaseException:
            self.runtime.give_back(ticket)
            raise
