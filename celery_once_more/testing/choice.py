"""Which places of a run are tried: all, those that a test names, or the one that the command line asks for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from celery_once_more.testing.errors import CrashTestError
from celery_once_more.testing.points import Point

_TURN = re.compile(r" #(\d+)$")


def chosen(points: Sequence[Point], wanted: Iterable[int | str] | None) -> tuple[list[Point], list[Point]]:
    """The places of this run that are wanted, and those wanted that it never reached.

    Args:
        wanted: numbers, or names as the report writes them (``after COMMIT``: at each turn; ``after COMMIT #2``: at the second);
            ``None``: all.

    Raises:
        CrashTestError: a number that no place has.
    """
    if wanted is None:
        return list(points), []
    found: list[Point] = []
    missing: list[Point] = []
    for one in wanted:
        if isinstance(one, int):
            if not 1 <= one <= len(points):
                raise CrashTestError(f"there is no place {one}: the undisturbed run has 1 to {len(points)}")
            found.append(points[one - 1])
            continue
        named = [point for point in points if one == point.name or one == f"{point.name} #{point.turn}"]
        found += named
        if not named:
            turn = _TURN.search(one)
            missing.append(
                Point(when="at", kind="named", what=_TURN.sub("", one), turn=int(turn[1]) if turn else 1, number=len(points) + 1)
            )
    return sorted(set(found), key=lambda point: point.number), missing


def nearest(points: Sequence[Point], name: str) -> str:
    """A hint for a name that no place has."""
    close = difflib.get_close_matches(name, [point.name for point in points], n=1)
    return f"the nearest is {close[0]!r}" if close else f"it reached {', '.join(repr(str(point)) for point in points[:8])}"
