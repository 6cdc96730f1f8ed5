"""The locks, as data: which holders refuse a publish, and which refuse a start.

Phases of a holder: ``W`` waiting (its message has not started), ``R`` running.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LockType:
    name: str
    #: phases of other holders that refuse a publish
    refuse_publish: str
    #: phases of other holders that refuse the start of an admitted message
    refuse_start: str
    #: how many may hold it at once
    limit: int = 1

    @property
    def refuse_unadmitted(self) -> str:
        """Phases of other holders that refuse the start of a message without a ticket: it stands at both doors at once."""
        return self.refuse_publish if "R" in self.refuse_publish else self.refuse_start


LOCK_TYPES = {lock.name: lock for lock in (LockType(name="until_executed", refuse_publish="WR", refuse_start="R"),)}
