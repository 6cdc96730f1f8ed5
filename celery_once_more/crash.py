"""Where the crash-point tests look into a task: all that production code needs to import of them.

Outside such a test nobody watches, and each function here costs one look at a module's variable.
"""

from __future__ import annotations

from typing import Literal, Protocol

#: ``at``: between two statements, where the code itself says so
When = Literal["before", "after", "at"]
#: ``sql`` is a statement that writes; ``claim`` and ``completion`` are a reservation's; ``named`` is the user's own
Kind = Literal["sql", "commit", "rollback", "http", "publish", "claim", "completion", "return", "named"]


class Watcher(Protocol):
    def reach(self, when: When, kind: Kind, what: str, /, *, key: str = "") -> None:
        """The task is before, or after, one effect; does not return where it shall die there.

        Args:
            key: by which the far side of a request knows one that it was sent before; empty where there is none.
        """

    def ahead_s(self) -> float:
        """Seconds by which the test has moved the clock of leases."""


#: set in a process that a crash-point test started, for as long as it runs a task
watcher: Watcher | None = None


def crash_point(name: str) -> None:
    """A place where the process may die, for a boundary that no library shows: a file written, a command run.

    Args:
        name: how the report calls it.
    """
    reach("at", "named", name)


def reach(when: When, kind: Kind, what: str, *, key: str = "") -> None:
    if watcher is not None:
        watcher.reach(when, kind, what, key=key)


def ahead_s() -> float:
    """What a lease adds to its database's clock; 0 outside tests."""
    return watcher.ahead_s() if watcher is not None else 0.0
