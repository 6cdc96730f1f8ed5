"""Which effects of some runs came to stay, counted from the places that they reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from celery_once_more.crash import Kind
from celery_once_more.testing.points import Point
from celery_once_more.testing.records import Life

#: what became of the transaction in which something was done
Fate = Literal["none", "committed", "rolled back", "lost"]
Step = tuple[Kind, str]
OUTSIDE: tuple[Kind, ...] = ("http", "publish")
#: what the code itself marks: somewhere near an effect, so it is asked last
MARKED: Kind = "named"


@dataclass(frozen=True, kw_only=True)
class Effect:
    kind: Kind
    what: str
    where: str
    #: its transaction's end; ``none`` where it was done outside of any that had written
    transaction: Fate
    #: writes of this run that were committed before it
    after_commits: int
    #: by which its far side knows it again; empty where there is none
    key: str = ""

    @property
    def stays(self) -> bool:
        return self.kind in (*OUTSIDE, MARKED) or self.transaction in ("none", "committed")


def autocommitted(clean: Sequence[Point]) -> frozenset[str]:
    """Statements that no COMMIT or ROLLBACK follows in an undisturbed run: each is a transaction of its own."""
    last = max((at for at, point in enumerate(clean) if point.kind in ("commit", "rollback")), default=-1)
    return frozenset(point.what for point in clean[last + 1 :] if point.kind == "sql")


def all_effects(lives: Iterable[Life], alone: frozenset[str]) -> list[Effect]:
    return [effect for life in lives for effect in effects(life, alone)]


def effects(life: Life, alone: frozenset[str]) -> list[Effect]:
    """What this run did, also what did not stay.

    Args:
        alone: statements that are transactions of their own.
    """
    done: list[tuple[Point, list[Fate], int]] = []
    open_: list[tuple[Point, list[Fate]]] = []
    commits = 0
    points = life.points
    for at, point in enumerate(points):
        if point.kind == "sql" and point.when == "after":
            fate: list[Fate] = ["none" if point.what in alone else "lost"]
            done.append((point, fate, commits))
            if point.what in alone:
                commits += 1
            else:
                open_.append((point, fate))
        elif point.kind == MARKED or (point.kind in OUTSIDE and _was_sent(life, at)):
            fate = ["lost" if open_ else "none"]
            done.append((point, fate, commits))
            if open_:
                open_.append((point, fate))
        elif (point.kind, point.when) in (("commit", "after"), ("rollback", "before")):
            for _, fate in open_:
                fate[0] = "committed" if point.kind == "commit" else "rolled back"
            commits += bool(open_) and point.kind == "commit"
            open_ = []
    if life.end and _refused(points, alone):
        for point, fate, before in done:
            if point.kind in OUTSIDE and before == commits and fate[0] != "committed":
                fate[0] = "rolled back"
    return [Effect(kind=point.kind, what=point.what, where=point.where, transaction=fate[0], after_commits=before, key=point.key)
            for point, fate, before in done]  # fmt: skip


def _refused(points: Sequence[Point], alone: frozenset[str]) -> bool:
    """The database refused this run's last statement, and with it the rest of its transaction."""
    last = next((point for point in reversed(points) if point.kind in ("sql", "commit", "rollback")), None)
    return last is not None and (last.kind, last.when) == ("sql", "before") and last.what not in alone


def _was_sent(life: Life, at: int) -> bool:
    """From its ``before`` on, unless the run died right there."""
    return life.points[at].when == "before" and not (life.died and at == len(life.points) - 1)


def published(lives: Iterable[Life], task: str) -> Counter[str]:
    """Task name -> messages of these runs that reached the broker, but for retries.

    Args:
        task: whose runs they are; a message of its own is a retry where it bears the run's task id.
    """
    sent: Counter[str] = Counter()
    for life in lives:
        sent.update(point.what for point in life.points if (point.kind, point.when) == ("publish", "after"))
        sent[task] -= len(life.retries)
    return sent


def counted(done: Iterable[Effect]) -> Counter[Step]:
    """How often each step came to stay."""
    return Counter((effect.kind, effect.what) for effect in done if effect.stays)


def told_apart(done: Iterable[Effect]) -> list[Effect]:
    """Without marks, and of the requests that bear one key the first only: the far side may know the others again."""
    keys: set[tuple[Step, str]] = set()
    found = []
    for effect in done:
        keyed = (effect.kind, effect.what), effect.key
        if effect.kind != MARKED and not (effect.key and keyed in keys):
            keys.add(keyed)
            found.append(effect)
    return found
