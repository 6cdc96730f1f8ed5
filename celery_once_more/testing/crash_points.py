"""``crash_points``: what a test calls to see whether a task survives dying anywhere."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Literal

from celery import Task

from celery_once_more.exceptions import OutcomeUnknown
from celery_once_more.testing import asked, compare
from celery_once_more.testing.checking import Check
from celery_once_more.testing.clock import SharedClock
from celery_once_more.testing.errors import CrashTestError
from celery_once_more.testing.forked import Forked
from celery_once_more.testing.instruments import open_transactions
from celery_once_more.testing.points import Point
from celery_once_more.testing.real_worker import WorkerStage
from celery_once_more.testing.redelivery import Death
from celery_once_more.testing.report import Report
from celery_once_more.testing.stage import Stage
from celery_once_more.testing.unwound import InProcess

#: seconds
DEADLINE_S = 30.0
BUDGET = 200

Die = Literal["kill", "raise", "worker"]


class CrashPoints:
    """Made by the fixture of this name.

    Args:
        only: the one place to try (``--crash-point``).
        seed: of the sample of second deaths (``--crash-seed``).
    """

    def __init__(self, *, only: int | None = None, seed: int | None = None) -> None:
        self._only = only
        self._seed = seed
        #: of the checks made so far
        self.reports: list[Report] = []

    def check(
        self,
        task: Task,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        state: Callable[[], Any],
        setup: Callable[[], Any] | None = None,
        rival: bool = False,
        depth: int = 1,
        points: Iterable[int | str] | None = None,
        die: Die | None = None,
        deaths: Sequence[Death] = ("child", "machine"),
        parked_ok: bool | Callable[[Point], bool] = False,
        parked: type[BaseException] | tuple[type[BaseException], ...] = (),
        deadline: float = DEADLINE_S,
        budget: int = BUDGET,
        seed: int | None = None,
    ) -> Report:
        """Kill the task at each place where it may die, deliver its message again, and compare the end with an undisturbed run.

        Locks of unique tasks are off, unless ``die="worker"``: a lock lapses, and the job has to be right without it.

        Args:
            state: what the world looks like, as plain data; compared with ``==``.
            setup: puts the world back, before each scenario.
            rival: also stop the owner at each place, and let a second delivery run to its end meanwhile.
            depth: 2: the recovery is killed at each of its places as well.
            points: numbers, or names as the report writes them; ``None``: all.
            die: ``"kill"``: a forked process, by SIGKILL (where there is ``fork``); ``"raise"``: an error in this process
                that nothing should catch; ``"worker"``: the child of a real prefork worker of the task's own app, at the
                first delivery only.
            deaths: whose death the job has to survive; with ``die="worker"`` it is the child's.
            parked_ok: whether it is right that the job waits for a person there.
            parked: errors with which the job says that it waits for a person, besides ``OutcomeUnknown``.
            deadline: seconds for one scenario.
            budget: scenarios with a second death, at most; above it a sample is drawn.
            seed: of that sample.

        Raises:
            CrashTestError: the check could not be made: no task, no place to die, a ``setup`` or ``state`` that fails, an
                undisturbed run that fails or is not the same twice.
        """
        bound = asked.bound(task)
        asked.call(args, kwargs)
        asked.functions(state=state, setup=setup)
        waits = parked if isinstance(parked, tuple) else (parked,)
        points = list(points) if isinstance(points, Iterable) and not isinstance(points, str) else points
        asked.options(depth=depth, deaths=deaths, deadline=deadline, points=points, parked=waits, budget=budget)
        asked.dying(die, rival=rival, depth=depth)
        asked.committed(open_transactions())
        common = {
            "setup": _prepared(setup),
            "state": lambda: compare.snapshot(state),
            "deadline_s": deadline,
            "parked": (OutcomeUnknown, *waits),
        }
        with _stage(die, bound, args, kwargs or {}, common) as stage:
            report = Check(
                stage=stage,
                deaths=["child"] if die == "worker" else deaths,
                rival=rival,
                depth=depth,
                budget=budget,
                seed=next(s for s in (self._seed, seed, random.randrange(1_000_000)) if s is not None),
                parked_ok=parked_ok if callable(parked_ok) else lambda _: bool(parked_ok),
                points=[self._only] if self._only is not None else points,
            ).report()
        self.reports.append(report)
        return report


@contextmanager
def _stage(die: Die | None, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any],
           common: Mapping[str, Any]) -> Iterator[Stage | WorkerStage]:  # fmt: skip
    if die == "worker":
        with closing(WorkerStage(task, args, kwargs, **common)) as stage:
            yield stage
        return
    starter = InProcess if die == "raise" or not hasattr(os, "fork") else Forked
    with closing(SharedClock()) as clock:
        yield Stage(task=task, args=args, kwargs=kwargs, clock=clock, starter=starter, **common)


def _prepared(setup: Callable[[], Any] | None) -> Callable[[], Any]:
    def prepared() -> None:
        if setup is None:
            return
        try:
            setup()
        except Exception as exc:
            raise CrashTestError(f"setup raised {type(exc).__name__}: {exc}") from exc

    return prepared
