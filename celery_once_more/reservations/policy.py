"""What to do where nobody knows whether an effect was done, and what a far side can answer when it is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any


@dataclass(frozen=True)
class Policy:
    name: str
    #: for ``verify``: what asks the far side
    ask: Callable[[Any], Any] | None = None

    def __repr__(self) -> str:
        return self.name


class Answer(Enum):
    """Of a function given to :func:`verify`, where it is not :class:`Done`."""

    NOT_DONE = "not done"
    CANNOT_SAY = "cannot say"


@dataclass(frozen=True)
class Done:
    """The effect was done, and this, which is JSON, came of it."""

    result: Any = None


NOT_DONE = Answer.NOT_DONE
CANNOT_SAY = Answer.CANNOT_SAY

#: do it again: right where the far side honours the deduplication key, or where twice is as good as once
REPEAT = Policy("REPEAT")
#: leave it to a person
REFUSE = Policy("REFUSE")
#: at most once: count it as done, with the result ``None``
ASSUME_DONE = Policy("ASSUME_DONE")


def verify(ask: Callable[[Any], Done | Answer]) -> Policy:
    """Ask the far side: ``ask(reservation)`` answers ``Done(result)``, ``NOT_DONE`` or ``CANNOT_SAY``.

    No other attempt runs while it asks. ``NOT_DONE`` must mean that it will not be done by the earlier attempt any more, either.
    """
    if not callable(ask):
        raise TypeError(f"verify takes the function that asks the far side, not {ask!r}")
    return Policy("verify", ask)
