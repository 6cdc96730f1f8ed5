"""What the scenarios need of a life in progress, wherever it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from celery import Task

from celery_once_more.testing.clock import SharedClock
from celery_once_more.testing.points import Identity, Numbering
from celery_once_more.testing.records import Life, Message


@dataclass(frozen=True, kw_only=True)
class Stop:
    """A place at which a run shall come to a stop, and how."""

    identity: Identity
    #: SIGKILL, or SIGSTOP
    signal: int


class Process(Protocol):
    life: Life
    #: it stands still
    stopped: bool
    #: it has ended, or died
    over: bool

    def wait(self, until: float, *, blocked: bool = False) -> None:
        """Until it is over or stands still.

        Args:
            until: ``time.monotonic()`` at which it counts as hung.
            blocked: return as well when it seems to wait for somebody else.
        """

    def thaw(self) -> None:
        """Let it go on."""

    def close(self) -> None:
        """End what is left of it."""


class Starter(Protocol):
    def __call__(self, task: Task, message: Message, clock: SharedClock, numbering: Numbering, *, stop: Stop | None = None,
                 parked: tuple[type[BaseException], ...] = ()) -> Process: ...  # fmt: skip
