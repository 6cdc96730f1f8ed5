"""The state table of the docs is true of the store and of the model: every row, on both, in every combination it names."""

from __future__ import annotations

import itertools
import re
from collections import Counter, deque
from dataclasses import dataclass, replace

import pytest
from contract.model import Model
from contract.state_table import DOCUMENT, OTHERS, Row, rows, states
from contract.twins import HANDOVER, LEASE, WAIT, Twins, as_seen, wall_ms

from celery_once_more.lock_types import LOCK_TYPES
from celery_once_more.locks import Renew
from celery_once_more.ticket import Ticket

DIGEST = "state-table-state-tabl"
MINE = Ticket(task="shop.settle", task_id="mine", digest=DIGEST, lock=LOCK_TYPES["until_executed"], series=7, hop=0, queue=None)
THEIRS = replace(MINE, task_id="theirs", series=8)
NAMESAKE = replace(MINE, series=8)


@dataclass(frozen=True)
class Step:
    """One act of one call, or an event."""

    verb: str
    ticket: Ticket = MINE
    run: str = ""
    hop: int = 0
    flag: bool = False

    def how(self) -> dict:
        """The act's arguments besides the ticket."""
        return {
            "acquire": {"wait_ms": WAIT},
            "start": {"run": self.run, "lease_ms": LEASE, "redelivered": self.flag},
            "finish": {"run": self.run, "only_this_message": self.flag},
            "requeue": {"run": self.run, "hop": self.hop, "wait_ms": HANDOVER},
            "confirm": {"hop": self.hop, "wait_ms": WAIT},
            "renew": {"run": self.run, "retake": self.flag},
            "look": {"run": self.run},
            "free": {"run": self.run, "phase": "running" if self.run else "waiting"},
        }.get(self.verb, {})

    def on(self, model: Model) -> None:
        """Do it to a model alone."""
        if self.verb == "lapse":
            model.lapse(DIGEST, self.ticket.series)
        elif self.verb == "reap":
            model.reap((), limit=100)
        elif self.verb == "renew":
            model.renew([Renew(ticket=self.ticket, run=self.run, lease_ms=LEASE, retake=self.flag)])
        elif self.verb == "free":
            model.free(as_seen(self.ticket, **self.how()))
        else:
            getattr(model, self.verb)(self.ticket, **self.how())

    def on_both(self, twins: Twins, *, compare: bool = True):
        if self.verb == "lapse":
            return twins.lapse(self.ticket.series)
        return twins.do(self.verb, self.ticket, compare=compare, **self.how())


def act(text: str) -> Step:
    """A cell of the column *act*."""
    verb, *rest = text.replace(",", "").split()
    if verb in ("acquire", "release"):
        return Step(verb, MINE.at_hop(int(rest[0])))
    if verb == "start":
        bare, asks = "bare" in rest, "asking" in rest
        ticket = replace(MINE.at_hop(int(rest[0])), known=not bare, admitted=not (bare or asks))
        return Step(verb, ticket, run=rest[1], flag="again" in rest)
    if verb == "finish":
        return Step(verb, run="" if "without" in rest else rest[0], flag="message" in rest)
    if verb in ("requeue", "confirm"):
        old, new = rest[-1].split(">")
        return Step(verb, MINE.at_hop(int(old)), run=rest[0].strip("-") if verb == "requeue" else "", hop=int(new))
    if verb == "renew":
        return Step(verb, run=rest[0], flag="retake" in rest)
    if verb == "look":
        return Step(verb, MINE.at_hop(int(rest[0])), run=rest[1])
    if verb == "free":
        return Step(verb, run=rest[0] if rest[0] != "0" else "")
    assert verb == "reap", text
    return Step(verb)


#: what may happen on the way to a state
STEPS = [
    *map(act, ("acquire 0", "release 1", "start 0 A", "start 0 B", "start 1 B", "finish A")),
    *map(act, ("requeue A 0>1", "requeue A 0>0", "confirm 0>1", "free A")),
    Step("lapse"),
    *(Step(verb, other, run="X") for other in (THEIRS, NAMESAKE) for verb in ("acquire", "start", "lapse")),
]


def mine(model: Model) -> str:
    """The state of my call, as the document writes it."""
    own = next((h for h in model._holders(DIGEST) if h.series == MINE.series), None)
    text = "-"
    if own:
        text = own.phase + "".join(map(str, own.hops)) + (f".{own.run}" if own.run else "") + "!" * (own.until <= model.clock())
    spent = " s0" if MINE.spent_member in model.memory else ""
    return text + spent + (" d" if MINE.done_member in model.memory else "")


def others(model: Model) -> str:
    """The state of the other call, if there is one."""
    for held in model._holders(DIGEST):
        if held.series != MINE.series:
            same = "=" if held.task_id == MINE.task_id and held.phase == "W" and held.until > model.clock() else ""
            return held.phase + same + "!" * (held.until <= model.clock())
    return "-"


def paths() -> dict[tuple[str, str], list[Step]]:
    """The shortest way to each state of both calls, found in the model."""
    found: dict[tuple[str, str], list[Step]] = {("-", "-"): []}
    todo = deque(found)
    while todo:
        here = todo.popleft()
        for step in STEPS:
            model = Model(wall_ms)
            for before in found[here]:
                before.on(model)
            step.on(model)
            there = mine(model), others(model)
            if there not in found and len(found[here]) < 8:
                found[there] = [*found[here], step]
                todo.append(there)
    return found


PATHS = paths()
ROWS = rows()


@pytest.fixture(scope="module")
def twins(redis_server):
    twins = Twins(redis_server, DIGEST)
    twins.clear()
    yield twins
    twins.clear()


def test_every_state_of_the_document_can_be_reached():
    assert set(states()) <= {own for own, _ in PATHS}


def test_every_act_stands_once_for_every_state_and_every_other_call():
    told = Counter((row.act, own, other) for row in ROWS for own in row.before for other in row.others)
    assert {key: n for key, n in told.items() if n > 1} == {}
    everything = itertools.product({row.act for row in ROWS}, states(), OTHERS)
    assert set(everything) - set(told) == set()


def test_the_locks_of_the_document_are_those_that_there_are():
    lines = DOCUMENT.read_text().split("| lock | refuse a publish |")[1].split("\n\n")[0].splitlines()[2:]
    told = {}
    for line in lines:
        name, publish, start, keeps = (re.sub(r"\(.*?\)", "", cell).strip(" `") for cell in line.strip("|").split("|"))
        told[name] = publish.replace(" ", ""), start.replace(" ", ""), keeps == "yes"
    assert told == {name: (lock.refuse_publish, lock.refuse_start, lock.kept) for name, lock in LOCK_TYPES.items()}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_row_is_true(row: Row, twins: Twins):
    """Where two calls cannot be in such states together, there is no way to them, and nothing to show."""
    shown = 0
    for own, other in itertools.product(row.before, row.others):
        if (own, other) not in PATHS:
            continue
        twins.clear()
        for step in PATHS[own, other]:
            step.on_both(twins, compare=False)
        assert (mine(twins.model), others(twins.model)) == (own, other)
        before = [h for h in twins.holders if h.series != MINE.series]
        step = act(row.act)
        real = step.on_both(twins)
        said = getattr(real, "verdict", real[0] if isinstance(real, tuple) else real)
        assert row.act == "reap" or str(said) == row.answer, twins.story(f"{row} says {row.answer}")
        assert mine(twins.model) == (own if row.after == "=" else row.after), twins.story(str(row))
        adopted = other == "W=" and row.answer == "run" and not step.ticket.known
        freed = adopted or (row.frees and other.endswith("!"))
        assert [h for h in twins.holders if h.series != MINE.series] == ([] if freed else before), twins.story(str(row))
        shown += 1
    assert shown, f"no state of {row} can be reached"


@pytest.mark.parametrize("state", states())
def test_a_flush_leaves_nothing_and_a_lapse_only_lets_the_deadline_pass(state: str, twins: Twins):
    for event in ("lapse", "flush"):
        twins.clear()
        for step in PATHS[state, "-"]:
            step.on_both(twins)
        was = [replace(h, until=0) for h in twins.holders]
        twins.lapse(MINE.series) if event == "lapse" else twins.flush()
        if event == "flush":
            assert mine(twins.model) == "-"
        else:
            assert [replace(h, until=0) for h in twins.holders] == was
            assert "!" in mine(twins.model) or not was
