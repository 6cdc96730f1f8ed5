"""Frees locks behind which nobody alive stands: their holder lapsed, since nobody renewed it, or its message is gone.

What it cannot know is whether a lapsed run really is dead; a wrong free costs at most one more queued copy, never two
runs at once, because the start of a run is the authority.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from celery import Celery, Task

from celery_once_more import orphans, report
from celery_once_more.locks.keys import BUCKETS
from celery_once_more.runtime import runtime

logger = logging.getLogger(__name__)

TASK_NAME = "celery_once_more.reap"
#: seconds after which a pass that no worker has begun is dropped, so that passes do not pile up
EXPIRES = 60


@dataclass
class Counts:
    #: freed: its lease, or queue lease, had passed
    lapsed: int = 0
    #: freed: two looks missed its message, and no worker knew of it
    orphaned: int = 0
    #: freed as it should be: the period of ``until_expired`` was over
    expired: int = 0
    #: looked at and kept: its deadline had moved on, or its message was found, or missed for the first time, or is unknown
    kept: int = 0


@dataclass
class ReapReport:
    """What one pass did."""

    #: per task name
    tasks: dict[str, Counts] = field(default_factory=lambda: defaultdict(Counts))
    #: digests whose record this package cannot read: left alone
    unreadable: list[str] = field(default_factory=list)

    @property
    def lapsed(self) -> int:
        return sum(counts.lapsed for counts in self.tasks.values())

    @property
    def expired(self) -> int:
        return sum(counts.expired for counts in self.tasks.values())

    @property
    def orphaned(self) -> int:
        return sum(counts.orphaned for counts in self.tasks.values())

    @property
    def kept(self) -> int:
        return sum(counts.kept for counts in self.tasks.values())

    def as_dict(self) -> dict[str, Any]:
        """The JSON that the task ``celery_once_more.reap`` returns."""
        return {
            "lapsed": self.lapsed,
            "orphaned": self.orphaned,
            "expired": self.expired,
            "kept": self.kept,
            "unreadable": self.unreadable,
            "tasks": {name: vars(counts) for name, counts in self.tasks.items()},
        }


def reap(app: Celery, *, buckets: Iterable[int] | None = None) -> ReapReport:
    """One pass. Two at once do no harm; at most ``once_more_reap_limit`` holders are freed, the rest is the next pass's.

    Args:
        buckets: free only what lapsed, in these of the store's 256 buckets.

    Raises:
        StoreUnavailable: the store did not answer; what was freed until then stays freed.
    """
    rt = runtime(app)
    limit = rt.settings.reap_limit
    reaped = rt.store.reap(range(BUCKETS) if buckets is None else buckets, limit=limit)
    report.reaped(reaped.lapsed)
    done = ReapReport(unreadable=reaped.foreign)
    for task in reaped.kept:
        done.tasks[task].kept += 1
    for holder in reaped.lapsed:
        counts = done.tasks[holder.task]
        if holder.phase == "kept":
            counts.expired += 1
        else:
            counts.lapsed += 1
    if buckets is None:
        gone, kept = orphans.free(rt, limit=limit - len(reaped.lapsed))
        for waiting in gone:
            report.orphaned(waiting)
            done.tasks[waiting.task].orphaned += 1
        for waiting in kept:
            done.tasks[waiting.task].kept += 1
    for digest in reaped.foreign:
        logger.error("lock %s: its record in the store is not ours, and is left alone", digest)
    return done


def register(app: Celery) -> None:
    """Make the beat task known to this app, and to no other."""

    def run() -> dict[str, Any]:
        return reap(app).as_dict()

    app.task(run, name=TASK_NAME, base=Task, shared=False, expires=EXPIRES)
