"""The report of a check: it reads like a story, the earliest place that fails first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from celery_once_more.testing.points import Point
from celery_once_more.testing.records import Life
from celery_once_more.testing.verdict import OUTCOMES, Result

#: told from beginning to end, each for a fault of its own; the others, a line for each reason
STORIES = 3
#: named of those that fail for the same reason
GROUP = 10


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    task: str
    #: where the undisturbed run may die
    points: Sequence[Point]
    results: Sequence[Result]
    #: whether Celery would deliver the message of a dead run again, and why
    fates: Sequence[str]
    #: what this check leaves out
    notes: Sequence[str] = ()
    #: of the sample of second deaths; ``--crash-seed`` takes it
    seed: int | None = None
    #: how many scenarios with a second death there would have been
    second_deaths: int = 0

    @property
    def ok(self) -> bool:
        return all(result.ok for result in self.results)

    @property
    def failures(self) -> list[Result]:
        """The earliest place first; second deaths after all others."""
        return sorted((result for result in self.results if not result.ok), key=_order)

    def counts(self) -> Counter[str]:
        """Outcome -> scenarios."""
        return Counter(result.outcome for result in self.results)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        return f"<{self.summary}>"

    @property
    def summary(self) -> str:
        counts = self.counts()
        told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])
        return f"{self.task} may die at {_many(self.points, 'place')}; {_many(self.results, 'scenario')}: {told}."

    def _lines(self) -> Iterator[str]:
        yield self.summary
        yield from self.fates
        yield from self.notes
        if self.seed is not None:
            deaths = sum(result.scenario == "killed twice" for result in self.results)
            yield f"Second deaths: {deaths} of {self.second_deaths}, drawn with --crash-seed={self.seed}."
        told = list(_new_faults(self.failures))[:STORIES]
        for result in told:
            yield ""
            yield from _story(result)
        rest = [result for result in self.failures if result not in told]
        if rest:
            yield ""
            yield "Also:"
            yield from _grouped(rest)
        if not self.ok:
            yield ""
            yield f"One of them again: --crash-point={self.failures[0].point.number}"


def _story(result: Result) -> Iterator[str]:
    verdicts = "; ".join(f"{who}: {outcome}" for who, outcome in result.verdicts.items())
    yield f"{result.title}: {result.outcome} ({verdicts})"
    for number, life in enumerate(result.lives, 1):
        yield f"  delivery {number}{_flags(life)}"
        yield from _timeline(life)
    for note in result.notes:
        yield f"  {note}"
    if result.differences:
        yield "  against the undisturbed run:"
        yield from (f"    {difference}" for difference in result.differences)
    for diagnosis in result.diagnoses:
        yield f"  {diagnosis}"


def _many(things: Sequence[object], word: str) -> str:
    return f"{len(things)} {word}{'s' * (len(things) != 1)}"


def _new_faults(results: Sequence[Result]) -> Iterator[Result]:
    """The first that shows a fault, for each fault."""
    known: set[str] = set()
    for result in results:
        faults = {diagnosis.fault for diagnosis in result.diagnoses} or {result.outcome}
        if not faults <= known:
            known |= faults
            yield result


def _grouped(results: Sequence[Result]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for result in results:
        faults = list(dict.fromkeys(diagnosis.fault for diagnosis in result.diagnoses)) or result.differences[:1]
        groups.setdefault((result.outcome, "; ".join(faults)), []).append(result.short)
    for (outcome, why), titles in groups.items():
        more = f" and {len(titles) - GROUP} more" if len(titles) > GROUP else ""
        yield f"  {outcome}: {', '.join(titles[:GROUP])}{more}{f' ({why})' if why else ''}"


def _order(result: Result) -> tuple[bool, int, bool, int]:
    second = result.second
    return second is not None, result.point.number, result.scenario == "rival", second.number if second else 0


def _flags(life: Life) -> str:
    flags = ["redelivered"] * life.message.redelivered + [f"retry {life.message.retries}"] * bool(life.message.retries)
    return f" ({', '.join(flags)})" if flags else ""


def _timeline(life: Life) -> Iterator[str]:
    for at, point in enumerate(life.points, 1):
        yield f"    {point.number:>3}  {point!s:<40} {point.where}".rstrip()
        if at == life.frozen_at:
            yield "         ~~~ stood still here, until the rival was over ~~~"
    if life.hung:
        yield "         ??? was not over at the deadline of the scenario ???"
    elif life.died:
        yield "         *** killed here ***"
    elif life.end:
        yield f"         ended as {life.end}"
    elif life.trouble:
        yield from (f"         {line}" for line in life.trouble.strip().splitlines()[-3:])
