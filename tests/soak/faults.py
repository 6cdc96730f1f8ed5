"""The faults as data: a plan, drawn from the seed before the soak begins, so that the seed replays it."""

import random
from typing import NamedTuple

from soak.timing import LEASE

#: a worker that was ended is not a victim again until it had this long to come back
BACK_AFTER = 7.0

#: kind -> how often, against the others
ON_A_WORKER = {
    "kill child": 4,
    "kill main": 3,
    "kill group": 3,
    "pause shortly": 3,
    "pause beyond the lease": 3,
    "warm shutdown": 3,
    "cold shutdown": 3,
}
#: kind -> pools; only prefork has children, and at a cold shutdown Celery itself ends greenlets as if they had come to their end:
#: it acknowledges their messages, and so loses the calls
ONLY_IN = {"kill child": ("prefork",), "cold shutdown": ("prefork", "threads")}
ON_SERVICES = {
    "pause locks": 3,
    "flush scripts": 1,
    "flush locks": 1,
    "drop broker connections": 2,
    "drop lock connections": 2,
    "revoke": 3,
    "deliver again": 4,
    "deliver an old one again": 4,
    "kill publisher": 3,
}
#: these befall no run and no lock store: they keep no end of a run from being remembered
HARMLESS = ("revoke", "deliver again", "deliver an old one again", "kill publisher", "flush scripts")
#: seconds
PAUSES = {"pause shortly": (0.1, 0.6), "pause beyond the lease": (1.2 * LEASE, 2.2 * LEASE), "pause locks": (0.2, 1.6 * LEASE)}


class Fault(NamedTuple):
    #: seconds after the beginning
    at: float
    kind: str
    #: of a worker, or ``None``
    victim: str | None
    #: of a pause
    seconds: float
    #: which of those that there are when it comes, from 0 to 1
    which: float


def plan(seed, seconds, workers, kinds=None, every=2.0):
    """``workers``: name -> pool; ``kinds``: these only. About one fault every two seconds; a worker on its way back is left in
    peace."""
    draw, free, faults = random.Random(f"faults {seed}"), dict.fromkeys(workers, 0.0), []
    often = {kind: n for kind, n in {**ON_A_WORKER, **ON_SERVICES}.items() if kinds is None or kind in kinds}
    for turn in range(1, int(seconds / every) if often else 0):
        at = round((turn + draw.uniform(-0.4, 0.4)) * every, 2)
        kind = draw.choices(list(often), list(often.values()))[0]
        there = [name for name, since in free.items() if since <= at and workers[name] in ONLY_IN.get(kind, workers.values())]
        which, pause = draw.random(), round(draw.uniform(*PAUSES.get(kind, (0, 0))), 2)
        victim = draw.choice(there) if there and kind in ON_A_WORKER else None
        if kind in ON_A_WORKER and victim is None:
            if "deliver again" not in often:
                continue
            kind = "deliver again"
        if victim is not None:
            free[victim] = at + (pause + 0.5 if "pause" in kind else 0 if kind == "kill child" else BACK_AFTER)
        faults.append(Fault(at, kind, victim, pause, which))
    return faults
