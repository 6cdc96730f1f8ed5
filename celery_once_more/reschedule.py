"""The strategy ``reschedule``: a duplicate is published for later, to ask for the lock again at its start.

It waits longer from time to time, and never the same time as others: a crowd that waits for one lock neither floods the
broker nor comes back all at once. No retries are spent, and no message waits beyond its ``expires``.
"""

from __future__ import annotations

import random

from celery_once_more import delays
from celery_once_more.options import Options
from celery_once_more.runtime import Runtime

#: each wait is so much longer than the one before it, give or take
GROWTH, JITTER = 1.25, 0.25
#: the longest wait in seconds, unless ``reschedule_countdown`` is longer
LONGEST = 300.0


def countdown(rt: Runtime, options: Options, tries: int, expires_s: float | None) -> float:
    """Seconds to wait after ``tries`` times."""
    wait = min(options.countdown * GROWTH ** min(tries, 64), max(LONGEST, options.countdown))
    wait = delays.held_s(rt.app, wait * random.uniform(1 - JITTER, 1 + JITTER))
    return wait if expires_s is None else delays.whole_s(rt.app, max(0.0, min(wait, expires_s)))
