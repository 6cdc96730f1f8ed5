"""What one scenario says about the task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from celery_once_more.testing.diagnosis import Diagnosis
from celery_once_more.testing.points import Point
from celery_once_more.testing.records import Life

#: worst last
OUTCOMES = ("equal", "parked", "lost", "not reached", "wrong")
Outcome = Literal["equal", "parked", "lost", "not reached", "wrong"]
Scenario = Literal["killed", "killed twice", "rival"]


@dataclass(frozen=True, kw_only=True)
class Result:
    scenario: Scenario
    #: where it happened, and for ``killed twice`` where it happened the second time
    point: Point
    second: Point | None = None
    #: by who died: ``child``, ``machine``; for a rival there is one, ``rival``
    verdicts: Mapping[str, Outcome]
    #: the worst of them
    outcome: Outcome
    #: nothing has to be done about it
    ok: bool
    #: how the end differs from that of the undisturbed run
    differences: Sequence[str] = ()
    diagnoses: Sequence[Diagnosis] = ()
    lives: Sequence[Life] = ()
    notes: Sequence[str] = ()

    @property
    def title(self) -> str:
        also = f", and again {self.second}" if self.second else ""
        verb = "rival" if self.scenario == "rival" else "killed"
        at = "at " * (self.point.kind == "named")
        which = f" in delivery {self.point.delivery}" * (self.point.delivery > 1)
        return f"{self.point.number}. {verb} {at}{self.point}{which}{also}"

    @property
    def short(self) -> str:
        also = f" and {self.second.number}" if self.second else ""
        return f"{self.scenario} at {self.point.number}{also}"
