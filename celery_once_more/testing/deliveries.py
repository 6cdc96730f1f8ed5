"""What became of one message that a real worker was given: its runs, as the worker's processes told of them."""

from __future__ import annotations

import json
import mmap
import struct
from dataclasses import dataclass, field
from typing import Any, Literal

from celery_once_more.testing.redelivery import Kind

Outcome = Literal["ended", "lost", "hung"]


@dataclass(kw_only=True)
class Run:
    """One start of the message, or of a retry of it."""

    redelivered: bool
    retries: int
    #: the pool child's process id
    pid: int
    #: what the watcher told, in order
    told: list[Any] = field(default_factory=list)
    #: Celery's state where the run came to an end of its own
    state: str | None = None
    #: the error's class and text
    error: str = ""
    #: a rejected message goes back to its queue
    requeued: bool = False
    #: what Celery did with the message where the process did not come to that end; ``None``: it did
    fate: Kind | None = None


@dataclass(kw_only=True)
class Delivery:
    """One call, until nothing of it is under way any more."""

    task_id: str
    #: the worker's own, which is gone with it
    queue: str = ""
    runs: list[Run] = field(default_factory=list)
    #: why it cannot be told how it went on: a deadline, a worker that ended, a watcher that failed
    trouble: str = ""
    #: messages that are in the broker, or in a worker's memory
    under_way: int = 1
    _retried: bool = False

    @property
    def outcome(self) -> Outcome:
        if self.trouble:
            return "hung"
        return "lost" if self.runs and self.runs[-1].fate == "lost" else "ended"

    @property
    def settled(self) -> bool:
        over = bool(self.runs) and (self.runs[-1].state is not None or self.runs[-1].fate is not None)
        return bool(self.trouble) or (over and self.under_way == 0)

    def read(self, name: str, told: Any) -> None:
        """Take in what one of the worker's processes told of this call."""
        if name == "trouble":
            self.trouble = told
        elif name == "start":
            self.under_way -= 1
            self._retried = False
            self.runs.append(Run(**told))
        elif name == "told":
            self.runs[-1].told.append(told)
        elif name == "sent":
            self.under_way += 1
            self._retried = self._retried or told["by"] == "main"
        elif name == "end":
            last = self.runs[-1]
            last.state, last.error, last.requeued = told["state"], told["error"], told["requeued"]
            self.under_way += last.requeued
        elif name == "cut":
            self._cut(**told)

    def _cut(self, *, requeued: bool, failed: bool, error: str) -> None:
        """The main process has done with a run whose process told of no end."""
        if not self.runs:  # it died before it could say that it started
            self.under_way -= 1
            self.runs.append(Run(redelivered=False, retries=0, pid=0))
        last = self.runs[-1]
        self.under_way += requeued
        last.error = last.error or error
        if requeued:
            last.fate = "redelivered"
        elif self._retried:
            last.fate = "retried"
        elif failed:
            last.fate = "lost"
        else:
            last.state = last.state or "SUCCESS"  # stored before it died, and Celery 5.7 leaves it at that


#: runs of the call so far, the child that the main process knows of, the length of the order: each has one writer at a time
_HEAD, _ONE = struct.Struct("qqq"), struct.Struct("q")
#: bytes
ROOM = 1 << 16


class Orders:
    """What the worker's processes shall do with the call at hand, in memory that they share with the test."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, ROOM)

    def give(self, task_id: str, arm: Any) -> None:
        """Before the call is published."""
        order = json.dumps([task_id, arm]).encode()
        if len(order) > ROOM - _HEAD.size:
            raise ValueError(f"arm is {len(order)} bytes long, and there is room for {ROOM - _HEAD.size}")
        self._memory[_HEAD.size : _HEAD.size + len(order)] = order
        _HEAD.pack_into(self._memory, 0, 0, 0, len(order))

    @property
    def task_id(self) -> str:
        return str(self._order()[0])

    @property
    def arm(self) -> Any:
        return self._order()[1]

    def started(self) -> int:
        """Count a run; return its number, from 1."""
        number = int(_ONE.unpack_from(self._memory, 0)[0]) + 1
        _ONE.pack_into(self._memory, 0, number)
        return number

    def note_accepted(self, pid: int) -> None:
        """The main process knows that this child runs the message."""
        _ONE.pack_into(self._memory, _ONE.size, pid)

    def accepted_from(self) -> int:
        return int(_ONE.unpack_from(self._memory, _ONE.size)[0])

    def _order(self) -> Any:
        length = _HEAD.unpack_from(self._memory)[2]
        return json.loads(self._memory[_HEAD.size : _HEAD.size + length]) if length else ["", None]

    def close(self) -> None:
        self._memory.close()
