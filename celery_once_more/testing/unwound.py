"""A run in this very process, ended by an error that nothing should catch: where no process can be forked.

Weaker than a death: ``finally`` and ``with`` still run. Once dead, the run reaches no further place: each one raises again.
"""

from __future__ import annotations

import gc

from celery import Task

from celery_once_more.crash import Kind, When
from celery_once_more.testing import running
from celery_once_more.testing.clock import SharedClock
from celery_once_more.testing.points import Numbering, Point
from celery_once_more.testing.process import Stop
from celery_once_more.testing.records import Life, Message, uncaught
from celery_once_more.testing.watching import Places


class Crash(BaseException):
    """The task dies here."""


class _Raiser(Places):
    def __init__(self, life: Life, stop: Stop | None, clock: SharedClock, numbering: Numbering) -> None:
        super().__init__(stop.identity if stop is not None else None, numbering)
        self._life, self._clock = life, clock

    def reach(self, when: When, kind: Kind, what: str, /, *, key: str = "") -> None:
        if self._life.died:
            raise Crash
        super().reach(when, kind, what, key=key)

    def tell(self, point: Point) -> None:
        self._life.points.append(point)

    def stop(self) -> None:
        self._life.died = True
        raise Crash

    def ahead_s(self) -> float:
        return self._clock.ahead_s


class InProcess:
    """One life, over when the object is made."""

    stopped = False
    over = True

    def __init__(self, task: Task, message: Message, clock: SharedClock, numbering: Numbering, *, stop: Stop | None = None,
                 parked: running.Parked = ()) -> None:  # fmt: skip
        self.life = Life(message=message)
        raiser = _Raiser(self.life, stop, clock, numbering)
        try:
            self.life.end = running.run(task, message, raiser, self.life.retries.append, parked)
        except Crash:
            pass
        except BaseException as exc:
            if not isinstance(exc, (Exception, SystemExit)):
                raise
            self.life.trouble = uncaught(exc)
        if self.life.died:
            self.life.end = None  # somebody caught the error; the dead store nothing
            gc.collect()  # what the run had open, such as a connection, goes with its frames

    def wait(self, until: float, *, blocked: bool = False) -> None:
        """Nothing to wait for; there is no deadline either."""

    def thaw(self) -> None:
        """It never stands still."""

    def close(self) -> None:
        """It left no process."""
