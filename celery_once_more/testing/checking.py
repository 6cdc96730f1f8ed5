"""Plays every scenario of one task, and judges each against the undisturbed run."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from celery import Task, states

from celery_once_more.reservations.row import TABLE
from celery_once_more.testing.choice import chosen, nearest
from celery_once_more.testing.compare import differences
from celery_once_more.testing.diagnosis import Diagnosis, diagnose, doubled
from celery_once_more.testing.effects import Effect, Step, all_effects, autocommitted, published
from celery_once_more.testing.errors import CrashTestError
from celery_once_more.testing.points import Point
from celery_once_more.testing.real_worker import WorkerStage
from celery_once_more.testing.records import Life, Message
from celery_once_more.testing.redelivery import Death, Fate, fate
from celery_once_more.testing.report import Report
from celery_once_more.testing.scene import Scene
from celery_once_more.testing.stage import Stage
from celery_once_more.testing.verdict import OUTCOMES, Outcome, Result, Scenario


@dataclass(frozen=True, kw_only=True)
class Check:
    stage: Stage | WorkerStage
    #: who may die
    deaths: Sequence[Death]
    rival: bool
    depth: int
    #: scenarios with a second death, at most
    budget: int
    seed: int
    #: whether a job that waits for a person is right there
    parked_ok: Callable[[Point], bool]
    #: see :func:`chosen`
    points: Iterable[int | str] | None = None
    #: what a death alone doubles
    _repeated: set[Step] = field(default_factory=set)
    #: by what becomes of the message, and where it died
    _scenes: dict[tuple[str, tuple[Point, ...]], Scene] = field(default_factory=dict)

    def report(self) -> Report:
        places, missing = chosen(self.places, self.points)
        results = [self._not_reached(point) for point in missing]
        results += [self._killed(point) for point in places]
        self._repeated.update(step for result in results if result.outcome == "wrong" for step in self._doubled(result))
        if self.rival:
            results += [self._judged("rival", point, {"rival": self.stage.rivalled(point)}) for point in places]
        seconds = self._second_deaths(places) if self.depth > 1 else []
        drawn = seconds if len(seconds) <= self.budget else random.Random(self.seed).sample(seconds, self.budget)
        results += [self._killed(first, second) for first, second in drawn]
        return Report(
            task=self.stage.task.name,
            points=self.places,
            results=results,
            fates=[f"When the {death} dies, the message is {its.kind}: {its.why}." for death, its in self._fates.items()],
            notes=self._notes(),
            seed=self.seed if len(drawn) < len(seconds) else None,
            second_deaths=len(seconds),
        )

    def _notes(self) -> list[str]:
        lives = self._clean.lives
        if len(lives) == 1:
            return []
        if self.stage.first_only:
            return [f"The undisturbed run has {len(lives)} deliveries: no place is tried in those that follow the first."]
        begin = ", ".join(str(life.points[0].number) for life in lives[1:] if life.points)
        return [f"The undisturbed run has {len(lives)} deliveries: the next begins at place {begin}."]

    @property
    def places(self) -> Sequence[Point]:
        """Where the undisturbed run may die, in each of its deliveries."""
        lives = self._clean.lives[: 1 if self.stage.first_only else None]
        return [point for life in lives for point in life.points]

    @cached_property
    def _clean(self) -> Scene:
        """Played twice: what is not the same both times says nothing after a crash."""
        first, second = self._undisturbed(), self._undisturbed()
        changed = differences(first.state, second.state)
        if changed:
            raise CrashTestError(
                f"task {self.stage.task.name!r}: not deterministic: two undisturbed runs left different states "
                f"({'; '.join(changed)}). Does setup put everything back, and does state leave out times and random ids?"
            )
        if not any(point.kind != "return" for life in first.lives for point in life.points):
            if kind := _never_run(self.stage.task.run):
                raise CrashTestError(
                    f"task {self.stage.task.name!r}: its body is {kind}, which Celery calls and does not run: nothing happened"
                )
            raise CrashTestError(
                f"task {self.stage.task.name!r}: no place was found where it could die: nothing that it writes, sends or "
                'publishes can be seen from outside. Mark its effects with crash_point("name")'
            )
        return first

    def _undisturbed(self) -> Scene:
        scene = self.stage.undisturbed()
        end = scene.lives[-1].end
        if scene.trouble or end is None or end.state not in (states.SUCCESS, "IGNORED"):
            why = scene.trouble or (f"ended as {end}" if end else "died")
            raise CrashTestError(f"task {self.stage.task.name!r}: the undisturbed run {why}")
        return scene

    @cached_property
    def _fates(self) -> dict[Death, Fate]:
        return {death: fate(self.stage.task, death) for death in self.deaths}

    @property
    def _lost(self) -> set[str]:
        return {death for death, its in self._fates.items() if its.kind == "lost"}

    def _killed(self, *at: Point) -> Result:
        scenes: dict[str, Scene] = {death: self._played(death, *at) for death in self._fates}
        return self._judged("killed" if len(at) == 1 else "killed twice", at[0], scenes, *at[1:])

    def _played(self, death: Death, *at: Point) -> Scene:
        """Once for all deaths after which the same becomes of the message."""
        key = self._fates[death].kind, at
        if key not in self._scenes:
            self._scenes[key] = self.stage.killed(*at, again=partial(_delivered_again, self.stage.task, death))
        return self._scenes[key]

    def _second_deaths(self, places: Sequence[Point]) -> list[tuple[Point, Point]]:
        survived = [death for death, its in self._fates.items() if its.kind != "lost"]
        if not survived:
            return []
        return [(first, second) for first in places
                for life in self._played(survived[0], first).lives[first.delivery :]
                for second in life.points]  # fmt: skip

    def _judged(self, scenario: Scenario, point: Point, scenes: Mapping[str, Scene], second: Point | None = None) -> Result:
        verdicts = {who: self._verdict(who, scene) for who, scene in scenes.items()}
        worst = max(verdicts, key=lambda who: OUTCOMES.index(verdicts[who]))
        scene, outcome = scenes[worst], verdicts[worst]
        return Result(
            scenario=scenario,
            point=point,
            second=second,
            verdicts=verdicts,
            outcome=outcome,
            ok=all(v == "equal" or (v == "parked" and self.parked_ok(point)) for v in verdicts.values()),
            differences=self._differences(worst, scene) if outcome != "not reached" else ["the run went another way"],
            diagnoses=self._diagnoses(worst, scene) if outcome == "wrong" and not scene.trouble else [],
            lives=scene.lives,
            notes=scene.notes,
        )

    def _verdict(self, who: str, scene: Scene) -> Outcome:
        if not scene.reached:
            return "not reached"
        if scene.lost or who in self._lost:
            return "lost"
        if scene.trouble:
            return "wrong"
        if any(life.end and life.end.parked for life in scene.lives):
            return "parked"
        return "wrong" if self._differences(who, scene) else "equal"

    def _differences(self, who: str, scene: Scene) -> list[str]:
        if scene.trouble:
            return [f"the task {scene.trouble.splitlines()[0]}"]
        told = differences(self._clean.state, scene.state) + self._unpublished(scene)
        ends = [life.end for life in scene.lives if life.end]
        counting = ends if who == "rival" else ends[-1:]  # the owner whose time was over may well fail
        wanted = self._clean.lives[-1].end
        if counting and wanted and not any(end.state == wanted.state for end in counting):
            told.append(f"the task ended as {counting[-1].state} ({counting[-1].error}) instead of {wanted.state}")
        return told

    def _unpublished(self, scene: Scene) -> list[str]:
        """No state shows a message that was never sent. One that is sent twice is its task's affair."""
        wanted, now = (published(lives, self.stage.task.name) for lives in (self._clean.lives, scene.lives))
        return [f"published {name} {now[name]} times instead of {times}" for name, times in wanted.items() if now[name] < times]

    def _diagnoses(self, who: str, scene: Scene) -> list[Diagnosis]:
        return diagnose(self._planned, scene.lives, self._effects(scene.lives), rival=who == "rival", repeated=self._repeated)

    def _doubled(self, result: Result) -> list[Step]:
        return doubled(self._planned, self._effects(result.lives))

    @cached_property
    def _alone(self) -> frozenset[str]:
        return frozenset().union(*(autocommitted(life.points) for life in self._clean.lives))

    @cached_property
    def _planned(self) -> list[Effect]:
        return self._effects(self._clean.lives)

    def _effects(self, lives: Sequence[Life]) -> list[Effect]:
        """What the job itself did: neither its retries, nor what a reservation writes about itself, are to blame."""
        retries = any(life.retries for life in lives)
        return [
            effect
            for effect in all_effects(lives, self._alone)
            if not (effect.kind == "sql" and effect.what.endswith(f" {TABLE}"))
            and not (retries and (effect.kind, effect.what) == ("publish", self.stage.task.name))
        ]

    def _not_reached(self, point: Point) -> Result:
        why = f"the undisturbed run does not come by here; {nearest(self.places, point.name)}"
        verdicts: dict[str, Outcome] = dict.fromkeys(self.deaths, "not reached")
        return Result(scenario="killed", point=point, verdicts=verdicts, outcome="not reached", ok=False, differences=[why])


def _never_run(body: Callable[..., object]) -> str:
    """What the body is, where a call of it does nothing yet."""
    kinds = ((inspect.iscoroutinefunction, "a coroutine function"), (inspect.isasyncgenfunction, "an asynchronous generator"),
             (inspect.isgeneratorfunction, "a generator"))  # fmt: skip
    return next((kind for asks, kind in kinds if asks(body)), "")


def _delivered_again(task: Task, death: Death, message: Message) -> Message | None:
    kind = fate(task, death, retries=message.retries).kind
    if kind == "redelivered":
        return replace(message, redelivered=True)
    if kind == "retried":
        return replace(message, headers={**message.headers, "retries": message.retries + 1})
    return None
