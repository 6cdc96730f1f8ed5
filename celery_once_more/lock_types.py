"""The locks, as data: which holders refuse a publish, which refuse a start, and whether a period outlasts the run.

Everything else follows: a lock whose publish asks nothing is taken at the start; one that a start frees for others refuses
nobody while it runs. A record of every run is kept all the same, so that a redelivered copy does not run beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from celery_once_more.exceptions import ConfigurationError

#: a holder waits (its message has not started), runs, or is kept until the end of its period
PHASES = {"waiting": "W", "running": "R", "kept": "K"}
_NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class LockType:
    name: str
    #: phases of other holders that refuse a publish; none: a publish asks nothing, and takes nothing
    refuse_publish: str
    #: phases of other holders that refuse the start of an admitted message
    refuse_start: str
    #: the holder stays until its period (``lock_ttl``) is over, whatever becomes of its run
    kept: bool = False
    #: how many may hold it at once
    limit: int = 1

    @property
    def at_publish(self) -> bool:
        """A publish takes it."""
        return bool(self.refuse_publish)

    @property
    def at_start(self) -> bool:
        """A start may be refused that an admitted publish does not answer for: then the server strategy decides."""
        return "R" in self.refuse_start and "R" not in self.refuse_publish

    @property
    def server(self) -> str:
        """What becomes of a duplicate at its start, unless the task says; dropping one there would lose work that was let in."""
        return "reschedule" if self.at_start else "log"

    @property
    def limited(self) -> bool:
        """Only its runs count, so that there may be several (``lock_limit``)."""
        return not self.refuse_publish and not self.kept

    @property
    def refuse_unadmitted(self) -> str:
        """Phases of other holders that refuse the start of a message that was not admitted: it stands at both doors at once."""
        return self.refuse_publish if "R" in self.refuse_publish else self.refuse_start


LOCK_TYPES = {
    lock.name: lock
    for lock in (
        LockType(name="until_executing", refuse_publish="W", refuse_start=""),
        LockType(name="until_executed", refuse_publish="WR", refuse_start="R"),
        LockType(name="until_expired", refuse_publish="WRK", refuse_start="R", kept=True),
        LockType(name="until_and_while_executing", refuse_publish="W", refuse_start="R"),
        LockType(name="while_executing", refuse_publish="", refuse_start="R"),
    )
}


def register_lock(name: str, *, refuse_publish: Iterable[str] = (), refuse_start: Iterable[str] = ("running",)) -> None:
    """Add a lock of your own, in every process that publishes or runs its tasks.

    Args:
        name: what tasks call it, like ``until_started``.
        refuse_publish: phases of a holder (``"waiting"``, ``"running"``) that make a publish a duplicate.
            None of them: a publish asks nothing, and the lock is taken at the start.
        refuse_start: phases of a holder that keep a message from starting: ``("running",)``, or none.

    Raises:
        ConfigurationError: a name that is taken or no word, or phases that are none.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(f"register_lock: a lock's name is a word like 'until_started', not {name!r}")
    at_publish, at_start = (
        _phases(where, phases, known)
        for where, phases, known in (
            ("refuse_publish", refuse_publish, ("waiting", "running")),
            ("refuse_start", refuse_start, ("running",)),
        )
    )
    if not at_publish and not at_start:
        raise ConfigurationError(f"register_lock: {name!r} would refuse nothing; give it refuse_publish or refuse_start")
    lock = LockType(name=name, refuse_publish=at_publish, refuse_start=at_start)
    if LOCK_TYPES.setdefault(name, lock) != lock:
        raise ConfigurationError(f"register_lock: there is a lock {name!r} already")


def _phases(where: str, given: Iterable[str], known: tuple[str, ...]) -> str:
    words = [given] if isinstance(given, str) else list(given)
    for word in words:
        if word not in known:
            raise ConfigurationError(f"register_lock: {where} knows {', '.join(map(repr, known))}, not {word!r}")
    return "".join(PHASES[word] for word in known if word in words)
