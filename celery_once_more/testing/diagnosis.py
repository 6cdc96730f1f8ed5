"""Names what is wrong with a job, from what it did twice or not at all, and the way of making that step safe.

It reads places, not code: where it cannot know, it says what it saw.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from celery_once_more.testing.effects import MARKED, OUTSIDE, Effect, Step, counted, told_apart
from celery_once_more.testing.records import Life

STATE_CHECK = "state check"
UNIQUE_INDEX = "unique index"
ABSOLUTE_WRITE = "absolute write"
RESERVATION = "reservation"
PUT_IT_LAST = "put it last"

LATE_WRITE = "a completion that does not compare its token"


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    #: what is wrong, in a few words
    fault: str
    #: one of the five ways of making a step safe
    remedy: str
    #: the whole sentence
    text: str

    def __str__(self) -> str:
        return f"{self.fault}: {self.text} Remedy: {self.remedy}."


def doubled(planned: Iterable[Effect], done: Iterable[Effect]) -> list[Step]:
    """What was done more often than planned."""
    before, now = counted(planned), counted(done)
    return [step for step in now if now[step] > before[step]]


def diagnose(planned: Sequence[Effect], lives: Sequence[Life], done: Sequence[Effect], *, rival: bool,
             repeated: Collection[Step] = ()) -> list[Diagnosis]:  # fmt: skip
    """Most telling first.

    Args:
        planned: what the undisturbed runs did.
        lives: the scenario's runs.
        done: what they did.
        rival: two runs were under way at once.
        repeated: what is doubled by a death alone, without a rival.
    """
    before, now = counted(told_apart(planned)), counted(told_apart(done))
    twice = doubled(told_apart(planned), told_apart(done))
    found = [_doubled(step, done, planned, rival=rival and step not in repeated) for step in twice]
    left_out = [step for step in before if now[step] < before[step]]
    if any(kind in OUTSIDE for kind, _ in left_out):  # then what was written twice was a guard, and refused
        found = [_missing(what) for kind, what in left_out if kind in OUTSIDE]
    if rival:  # the far side may well take a second call for the first; a second write is one
        found.sort(key=lambda diagnosis: diagnosis.fault != LATE_WRITE)
    if not found:
        found = [_missing(what) for _, what in left_out]
    failed = next((life.end for life in reversed(lives) if life.end and life.end.state == "FAILURE"), None)
    if failed and not rival and not found:
        found.append(Diagnosis(
            fault="the second delivery fails",
            remedy=STATE_CHECK,
            text=f"it ended with {failed.error}. Look what is there already, and go on from it.",
        ))  # fmt: skip
    return found or _less_certain(planned, lives, done, rival=rival)


def _less_certain(planned: Sequence[Effect], lives: Sequence[Life], done: Sequence[Effect], *, rival: bool) -> list[Diagnosis]:
    """What may be nothing: a request that bears the same key each time, and marks, which need not stand at an effect."""
    before, now = counted(planned), counted(done)
    twice = doubled(planned, done)
    found = [_doubled(step, done, planned, rival=rival) for step in twice if step[0] in OUTSIDE]
    if not found:
        found = [_missing(f'"{what}"') for (kind, what), times in before.items() if kind == MARKED and now[kind, what] < times]
    return found or [_unseen(lives, rival=rival, marks=[what for kind, what in twice if kind == MARKED])]


def _doubled(step: Step, done: Sequence[Effect], planned: Sequence[Effect], *, rival: bool) -> Diagnosis:
    kind, what = step
    if kind in OUTSIDE:
        return _doubled_outside(what, [effect for effect in done if (effect.kind, effect.what) == step], planned)
    if what.startswith("UPDATE"):
        if rival:
            return Diagnosis(
                fault=LATE_WRITE,
                remedy=RESERVATION,
                text=f"{what} was done by the rival, and then once more by the owner, whose time was over. A completion has to "
                     "compare its token (or the state that it read) in its WHERE.",
            )  # fmt: skip
        return Diagnosis(
            fault="a relative write",
            remedy=ABSOLUTE_WRITE,
            text=f"{what} was done twice. Write what the value shall be, not by how much it changes, or change it in the "
                 "transaction of a row that can be there once only.",
        )  # fmt: skip
    if what.startswith("INSERT"):
        check = " Both looked before either had written: a look is no guard." if rival else ""
        return Diagnosis(
            fault="check, then insert" if rival else "an insert that nothing refuses",
            remedy=UNIQUE_INDEX,
            text=f"{what} was done twice.{check} Let the database refuse the second row, and ignore the conflict.",
        )
    return Diagnosis(fault="done twice", remedy=STATE_CHECK, text=f"{what} was done twice. Look first whether it is done.")


def _doubled_outside(what: str, times: Sequence[Effect], clean: Sequence[Effect]) -> Diagnosis:
    keys = [effect.key for effect in times if effect.key]
    asked = " The key was the same each time: does the far side honour it?" if len(set(keys)) < len(keys) else ""
    ends = {effect.transaction for effect in times}
    if "rolled back" in ends:
        return Diagnosis(
            fault="an effect inside a transaction that rolled back",
            remedy=f"{PUT_IT_LAST}, or {RESERVATION}",
            text=f"{what} was sent, and what belonged to it was refused or rolled back. Send it after the COMMIT.{asked}",
        )
    if ends & {"lost", "committed"} or _commits_after(what, clean):
        return Diagnosis(
            fault="an effect before its guard is committed",
            remedy=f"{RESERVATION}, or {PUT_IT_LAST}",
            text=f"{what} was sent twice: what would have told the second run was not committed when the first died. Commit a "
                 f"reservation before it; or, where once too few is better than once too often, send it after the COMMIT.{asked}",
        )  # fmt: skip
    if any(effect.after_commits for effect in times):
        return Diagnosis(
            fault="an effect that nothing remembers",
            remedy=RESERVATION,
            text=f"{what} was sent twice: nothing that the first run had committed told the second that it was done. Commit a "
                 f"reservation before it, and give the far side its key.{asked}",
        )  # fmt: skip
    return Diagnosis(
        fault="no guard inside the task",
        remedy=f"{STATE_CHECK}, or {RESERVATION}",
        text=f"{what} was sent twice: the task itself does not look whether it is done, and a look at the publish does not "
             f"count. A state check tells of a run that is over; of one that died half-way, only a reservation does.{asked}",
    )  # fmt: skip


def _commits_after(what: str, clean: Sequence[Effect]) -> bool:
    """Something is written after this effect, and nothing before it."""
    at = next((at for at, effect in enumerate(clean) if effect.what == what), len(clean))
    return any(effect.kind == "sql" for effect in clean[at + 1 :]) and not any(effect.kind == "sql" for effect in clean[:at])


def _missing(what: str) -> Diagnosis:
    return Diagnosis(
        fault="one guard for several effects",
        remedy=RESERVATION,
        text=f"{what} was left out: the next run found what the first had committed, and took the whole job for done. Each "
             "effect needs a guard of its own.",
    )  # fmt: skip


def _unseen(lives: Sequence[Life], *, rival: bool, marks: Sequence[str]) -> Diagnosis:
    if rival and not marks:
        return Diagnosis(
            fault=LATE_WRITE,
            remedy=RESERVATION,
            text="each step was done as often as in the undisturbed run, but on what another run had changed meanwhile. Compare, "
                 "in the WHERE, what was read.",
        )  # fmt: skip
    marked = next((point for life in lives if life.died for point in reversed(life.points) if point.kind == "named"), None)
    if rival:
        which = "Both came by " + ", ".join(f'"{mark}"' for mark in marks)
    elif marked:
        which = f'The last mark before its death was "{marked}"'
    else:
        which = "Mark those that no library shows with crash_point(…)"
    return Diagnosis(
        fault="an effect that no library shows",
        remedy=RESERVATION,
        text=f"each step that a library shows was done as often as in the undisturbed run. {which}.",
    )
