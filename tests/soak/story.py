"""All that happened in a soak, read once from what the witness was told: the runs, the faults, and what stood still."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from soak.timing import LEASE, NOTICED, STALLED


class Admitted(NamedTuple):
    """A publish that was let in: it had its lock at some time between the two."""

    id: str
    lock: str
    key: int
    asked: float
    answered: float


@dataclass
class Applied:
    """A fault: one that has not come to its end yet goes on."""

    begun: float
    kind: str
    #: of a worker, or ``None``
    victim: str | None
    over: float = math.inf


class Orphan(NamedTuple):
    """A waiting holder that the reaper freed, since nobody had its message."""

    task_id: str
    #: the pass that freed it
    since: float
    until: float
    #: its message was in the broker just after
    there: bool


@dataclass
class Run:
    """One entry of the witness."""

    n: int
    place: str
    task_id: str
    token: int
    worker: str
    entered: float
    #: the run that it met inside; 0: none
    met: int
    #: it came with a smaller token than the one inside
    refused: bool
    redelivered: bool
    #: of its call: how many retries and replacements were before it
    step: list
    #: the process of the one that it met was alive
    met_alive: bool = False
    left: float | None = None
    outcome: str = "died"
    #: when it asked for its lock, and whether it was told that it held it
    asked: float | None = None
    held: bool = False
    written: bool = False

    @property
    def started(self):
        """By the lock store, a little before it entered: the token is that moment, in microseconds."""
        return min(self.token / 1e6, self.entered)

    @property
    def value(self):
        return f"{self.task_id} {self.n}"


@dataclass
class Story:
    """All that happened, read once."""

    runs: dict = field(default_factory=dict)
    #: (worker or None for the lock store, since, until)
    stalls: list = field(default_factory=list)
    #: (since, until): the lock store forgot everything between the two
    flushes: list = field(default_factory=list)
    revoked: set = field(default_factory=set)
    hung: list = field(default_factory=list)
    faults: list = field(default_factory=list)
    #: calls whose publisher was killed before it sent them
    never_sent: set = field(default_factory=set)
    orphans: list = field(default_factory=list)

    @classmethod
    def of(cls, events):
        story = cls()
        for event in sorted(events, key=lambda e: e["event"] != "enter"):
            kind = event["event"]
            if kind == "enter":
                names = ("n", "place", "task_id", "token", "worker", "met", "refused", "redelivered", "step")
                story.runs[event["n"]] = Run(entered=event["at"], **{name: event[name] for name in names})
            elif kind == "met":
                story.runs[event["n"]].met_alive = event["alive"]
            elif kind == "leave":
                run = story.runs[event["n"]]
                run.left, run.outcome, run.written = event["at"], event["outcome"], event["written"]
                run.asked, run.held = event.get("asked"), event.get("held", False)
            elif kind == "stall":
                story.stalls.append((event["worker"], event["since"], event["until"]))
            elif kind == "flush":
                story.flushes.append((event["since"], event["at"]))
            elif kind == "revoked":
                story.revoked.add(event["call"])
            elif kind == "hung":
                story.hung.append(event)
            elif kind == "fault":
                story.faults.append(Applied(event["at"], event["kind"], event["victim"]))
            elif kind == "fault over":
                running = (f for f in story.faults if (f.begun, f.kind, f.victim) == tuple(event["fault"]))
                next(running).over = event["at"]
            elif kind == "never sent":
                story.never_sent.add(event["call"])
            elif kind == "orphans":
                story.orphans += [Orphan(call, event["since"], event["at"], call in event["there"]) for call in event["calls"]]
        return story

    def of_call(self, task_id):
        return [run for run in self.runs.values() if run.task_id == task_id]

    def store_failed(self, since, until):
        """The lock store stood still, or forgot, at some time between."""
        stood = [(begin, end) for worker, begin, end in self.stalls if worker is None]
        return any(begin < until and end > since for begin, end in stood + self.flushes)

    def may_have_lapsed(self, run, until):
        """Whether this run's worker, or the lock store, stood still for long enough, or the store forgot."""
        since = max(run.entered, until - 2 * LEASE) - LEASE
        stood = [(begin, end) for worker, begin, end in self.stalls if worker in (run.worker, None)]
        longest = max((min(until, end) - max(since, begin) for begin, end in stood), default=0.0)
        return longest >= STALLED or any(begin < until and end > since for begin, end in self.flushes)

    def stood_still_after(self, run, until):
        """This run's worker stood still from about its end until then."""
        return any(worker == run.worker and begin < run.left + NOTICED and end > until for worker, begin, end in self.stalls)

    def killed_somebody(self, since, until):
        kinds = ("kill child", "kill main", "kill group", "cold shutdown")
        return any(fault.kind in kinds and fault.begun < until and fault.over > since for fault in self.faults)

    def somebody_stalled(self, since, until):
        """For how long some worker, or the lock store, stood still between the two."""
        return max((min(until, end) - max(since, begin) for _, begin, end in self.stalls), default=0.0)
