"""Refuses a check that cannot be meant, with a sentence that says what would be right."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from celery import Task

from celery_once_more.testing.errors import CrashTestError
from celery_once_more.testing.redelivery import Death


def bound(task: Any) -> Task:
    """The task itself, where a lazy stand-in was given."""
    if not isinstance(task, Task):
        raise CrashTestError(f"{task!r} is no Celery task: give what @app.task made of the function")
    app = task.app
    app.finalize(auto=True)
    return app.tasks[task.name]


def call(args: Any, kwargs: Any) -> None:
    if not isinstance(args, (list, tuple)):
        raise CrashTestError(f"args is {args!r}: give a tuple, such as args=({args!r},)")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise CrashTestError(f"kwargs is {kwargs!r}: give a dict")


def functions(*, state: Any, setup: Any) -> None:
    if not callable(state):
        raise CrashTestError(f"state is {state!r}: give a function that looks at the world and returns plain data")
    if setup is not None and not callable(setup):
        raise CrashTestError(f"setup is {setup!r}: give a function that puts the world back")


def options(*, depth: Any, deaths: Sequence[Any], deadline: Any, points: Any, parked: Any, budget: Any) -> None:
    if depth not in (1, 2):
        raise CrashTestError(f"depth is {depth!r}: it can be 1, or 2 to kill the recovery as well")
    if not deaths or not set(deaths) <= set(get_args(Death)):
        raise CrashTestError(f"deaths is {deaths!r}: give some of {', '.join(map(repr, get_args(Death)))}")
    if not isinstance(deadline, (int, float)) or deadline <= 0:
        raise CrashTestError(f"deadline is {deadline!r}: give seconds, more than 0")
    if isinstance(points, (str, int)) or (points is not None and not points):
        raise CrashTestError(f"points is {points!r}: give a list of numbers or names, or leave it out to try them all")
    wrong = [point for point in points or () if not isinstance(point, (str, int)) or isinstance(point, bool)]
    if wrong:
        raise CrashTestError(f"points has {wrong[0]!r} in it: give numbers, or names as the report writes them")
    if not isinstance(budget, int) or budget < 1:
        raise CrashTestError(f"budget is {budget!r}: give a number of scenarios, 1 or more")
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in parked):
        raise CrashTestError(f"parked is {parked!r}: give the class of an error, or a tuple of them")


def dying(die: Any, *, rival: bool, depth: int) -> None:
    if die not in (None, "kill", "raise", "worker"):
        raise CrashTestError(f'die is {die!r}: it can be "kill", "raise" or "worker"')
    forks = hasattr(os, "fork")
    if die in ("kill", "worker") and not forks:
        raise CrashTestError(f'die="{die}" needs os.fork, which this system does not have: die="raise" works everywhere')
    if die == "worker" and depth > 1:
        raise CrashTestError('die="worker" kills the first delivery only: depth=2 needs die="kill", or die="raise"')
    if rival and (die in ("raise", "worker") or not forks):
        raise CrashTestError('rival=True needs a process that can stand still: die="kill", on a system with os.fork')


def committed(open_: Sequence[str]) -> None:
    """Args:
    open_: Django's database aliases that are in a transaction.
    """
    if open_:
        raise CrashTestError(
            f"the test is inside a transaction of {', '.join(map(repr, open_))}, which another process cannot see: mark it with "
            "@pytest.mark.django_db(transaction=True), or make it a TransactionTestCase"
        )
