"""The pytest plugin: ``crash_points``, its options, and what a failed test shows of it."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from celery_once_more.testing.crash_points import CrashPoints
from celery_once_more.testing.fixtures import far_side, once_more_locks, once_more_redis

__all__ = ["crash_points", "far_side", "once_more_locks", "once_more_redis"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("celery-once-more")
    group.addoption("--crash-point", type=int, metavar="N", help="try only this place of a crash-point test")
    group.addoption("--crash-seed", type=int, metavar="SEED", help="draw the second deaths of a crash-point test as in that run")


@pytest.fixture
def crash_points(request: pytest.FixtureRequest) -> CrashPoints:
    """Kill a task at every place where it may die: ``crash_points.check(task, args=…, setup=…, state=…)``."""
    return CrashPoints(only=request.config.getoption("--crash-point"), seed=request.config.getoption("--crash-seed"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """pytest shows 240 characters of what stands in an ``assert``; the story is longer."""
    shown = yield
    made = getattr(item, "funcargs", {}).get("crash_points")
    if shown.when == "call" and shown.failed and isinstance(made, CrashPoints):
        shown.sections += [("crash points", str(report)) for report in made.reports if not report.ok]
    return shown
