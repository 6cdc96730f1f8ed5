"""What a run's watcher does at each place, wherever the run is: number it, tell of it, and stop where that was asked."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from celery_once_more.crash import Kind, When
from celery_once_more.testing.points import Identity, Numbering, Point, users_place


class Places(ABC):
    """A watcher for one run.

    Args:
        stop_at: the identity of the place where it comes to a stop; ``None``: nowhere.
        numbering: of this run.
    """

    def __init__(self, stop_at: Identity | None, numbering: Numbering) -> None:
        self._stop_at = stop_at
        self._numbering = numbering
        self._pid = os.getpid()

    def reach(self, when: When, kind: Kind, what: str, /, *, key: str = "") -> None:
        if os.getpid() != self._pid:
            return  # a process that the job started: its death would not be the run's
        point = self._numbering.next(when, kind, what, users_place(kind), key)
        self.tell(point)
        if self._stop_at == point.identity:
            self.stop()

    @abstractmethod
    def tell(self, point: Point) -> None:
        """The run has come by here."""

    @abstractmethod
    def stop(self) -> None:
        """Die here, or stand still."""

    def ahead_s(self) -> float:
        return 0.0
