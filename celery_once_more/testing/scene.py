"""What happened in one scenario."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from celery_once_more.testing.points import Point
from celery_once_more.testing.records import Life

#: of an undisturbed run; as many more for each disturbance, as a retry comes on top that a dead run had published already
MOST_DELIVERIES = 20


@dataclass
class Scene:
    #: seconds that it was given
    deadline_s: float
    #: with more deliveries than this, the job counts as one that never settles
    most: int = MOST_DELIVERIES
    lives: list[Life] = field(default_factory=list)
    #: as the user's ``state`` told it when all was over
    state: Any = None
    #: the place where something was to happen was reached
    reached: bool = True
    #: a message died with its run, and does not come again
    lost: bool = False
    #: said in the report
    notes: list[str] = field(default_factory=list)

    @property
    def ended(self) -> list[Point]:
        """The places of the runs that came to an end of their own. From these the next one counts on: so the message of a run
        that died, or stands still, starts over where that run did."""
        return [point for life in self.lives if life.end for point in life.points]

    @property
    def trouble(self) -> str:
        """Why it came to no end that could be compared; empty where it did."""
        for life in self.lives:
            if life.hung:
                last = f"; the last place it reached was {life.points[-1]}" if life.points else ""
                return f"did not come to an end before its deadline of {self.deadline_s:g} s{last}"
            if life.trouble:
                return life.trouble
        if len(self.lives) > self.most:
            return f"was not settled after {self.most} deliveries"
        return ""
