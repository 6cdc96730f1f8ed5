"""What a process that runs a task tells the test, line by line, until it dies."""

from __future__ import annotations

import json
import traceback
from dataclasses import asdict, dataclass, field
from typing import Any

from celery_once_more.testing.points import Point


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message of the task under test: what a worker is given to run."""

    task_id: str
    #: the arguments as they travel: serialized, so that each run gets its own
    body: str
    content_type: str
    content_encoding: str
    headers: dict[str, Any]
    redelivered: bool = False
    #: seconds until it is due, as it was published
    countdown_s: float = 0.0

    @property
    def retries(self) -> int:
        return int(self.headers.get("retries") or 0)


@dataclass(frozen=True, kw_only=True)
class End:
    """How a run ended that was left to end."""

    #: Celery's state: SUCCESS, FAILURE, RETRY, REJECTED, IGNORED
    state: str
    #: the error's class and text; empty for a success
    error: str = ""
    #: ``file:line`` of the user's code in which that error was raised
    where: str = ""
    #: it waits for a person: the outcome of an effect is unknown, and the job says so
    parked: bool = False
    #: a rejected message goes back to its queue
    requeued: bool = False

    def __str__(self) -> str:
        return ": ".join(told for told in (self.state, self.error) if told) + (f" ({self.where})" if self.where else "")


@dataclass
class Life:
    """One run of one message, from its start until it ended or died."""

    message: Message
    points: list[Point] = field(default_factory=list)
    #: published by it under the task's own id: a retry
    retries: list[Message] = field(default_factory=list)
    end: End | None = None
    #: it was killed at its last point
    died: bool = False
    #: it stood still at this point while another delivery ran
    frozen_at: int | None = None
    #: it neither ended nor died in time
    hung: bool = False
    #: why nothing can be said of its end, after "the task": one line, and maybe a traceback
    trouble: str = ""

    def read(self, line: bytes) -> str:
        """Take in one line that :func:`line` made, and return its name."""
        name, told = json.loads(line)
        if name == "point":
            self.points.append(Point(**told))
        elif name == "retry":
            self.retries.append(Message(**told))
        elif name == "end":
            self.end = End(**told)
        elif name == "trouble":
            self.trouble = told
        return str(name)


def uncaught(error: BaseException) -> str:
    """What a run has for trouble that Celery let through."""
    told = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return f"ended with {type(error).__name__}: {error}\n\n{told}"


def line(name: str, told: Any = None) -> bytes:
    """One line of the pipe."""
    return json.dumps([name, asdict(told) if hasattr(told, "__dataclass_fields__") else told]).encode() + b"\n"
