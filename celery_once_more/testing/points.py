"""A place at which a run may die, and how it is told apart from the other places of that run."""

from __future__ import annotations

import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType

from celery_once_more.crash import Kind, When

#: by which a point is known again in another scene: delivery, name, turn
Identity = tuple[int, str, int]

_PACKAGE = str(Path(__file__).resolve().parents[1])
#: code in these folders is not the user's
_FOREIGN = tuple({*sysconfig.get_paths().values(), _PACKAGE} - {sysconfig.get_paths()["data"], sysconfig.get_paths()["scripts"]})


@dataclass(frozen=True, kw_only=True)
class Point:
    when: When
    kind: Kind
    what: str
    #: the how-manieth of this name, from 1: the seventh turn of a loop is a point of its own
    turn: int
    #: its place in what was reached, from 1; both count on through the deliveries of one scene
    number: int
    #: in which of them it was reached, from 1
    delivery: int = 1
    #: ``file:line`` of the nearest code that is neither a library's nor Celery's; empty where there is none
    where: str = ""
    #: of a request: by which its far side knows one that it was sent before; no two runs need have the same
    key: str = field(default="", compare=False, repr=False)

    @property
    def name(self) -> str:
        """Without the turn: ``after COMMIT``."""
        return self.what if self.kind == "named" else f"{self.when} {self.what}"

    @property
    def identity(self) -> Identity:
        return self.delivery, self.name, self.turn

    def __str__(self) -> str:
        return self.name if self.turn == 1 else f"{self.name} #{self.turn}"


class Numbering:
    """Numbers the places of one run as it reaches them.

    Args:
        delivery: the how-manieth of its scene.
        earlier: places of the deliveries before it, from which it counts on.
    """

    def __init__(self, *, delivery: int = 1, earlier: Sequence[Point] = ()) -> None:
        self._delivery = delivery
        self._turns: Counter[tuple[str, str, str]] = Counter((point.when, point.kind, point.what) for point in earlier)
        self._number = len(earlier)

    def next(self, when: When, kind: Kind, what: str, where: str = "", key: str = "") -> Point:
        self._turns[when, kind, what] += 1
        self._number += 1
        turn = self._turns[when, kind, what]
        return Point(when=when, kind=kind, what=what, turn=turn, number=self._number, delivery=self._delivery, where=where,
                     key=key)  # fmt: skip


def numbered(points: Iterable[tuple[When, Kind, str]]) -> list[Point]:
    numbering = Numbering()
    return [numbering.next(*point) for point in points]


def users_place(kind: Kind) -> str:
    """Where in the user's code the running thread is; nowhere when the body has returned."""
    if kind == "return":
        return ""
    frame = sys._getframe(1)
    while frame is not None:
        if place := _place(frame, frame.f_lineno):
            return place
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def raised_at(error: BaseException) -> str:
    """The innermost place in the user's code that this error went through."""
    places = [_place(step.tb_frame, step.tb_lineno) for step in _steps(error.__traceback__)]
    return next((place for place in reversed(places) if place), "")


def _steps(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _place(frame: FrameType, number: int) -> str:
    name = frame.f_code.co_filename
    return "" if name.startswith((*_FOREIGN, "<")) else f"{Path(name).name}:{number}"
