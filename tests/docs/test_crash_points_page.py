"""What docs/crash-points.md shows is what a user sees, and what the fixture takes is written down."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from celery_once_more.testing import CrashPoints, diagnosis
from celery_once_more.testing.redelivery import Options, decide
from celery_once_more.testing.verdict import OUTCOMES

PAGE = (Path(__file__).parents[2] / "docs" / "crash-points.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """``seen(*options)``: what pytest prints for the page's first test."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "test_checkout.py").write_text(blocks("python")[0])

    def seen(*options):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "celery_once_more.testing.plugin", *options]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout

    return seen


def test_the_page_shows_what_pytest_shows(seen):
    printed = seen()
    shown = blocks("text")
    assert len(shown) == 2
    for block in shown:
        assert block in printed, printed


def test_one_place_can_be_tried_alone(seen):
    assert "checkout may die at 11 places; 1 scenario: 1 wrong." in seen("--crash-point=4")
    assert "1 passed" in seen("--crash-point=2")


def test_the_other_python_block_runs():
    for block in blocks("python")[1:]:
        exec(compile(block, "crash-points.md", "exec"), {})


def test_every_argument_is_named():
    for name in list(inspect.signature(CrashPoints.check).parameters)[1:]:
        assert re.search(rf"`[^`]*\b{name}\b[^`]*`|`{name}=", PAGE), name


def test_every_outcome_fault_and_remedy_is_named():
    for word in (*OUTCOMES, diagnosis.LATE_WRITE, diagnosis.ABSOLUTE_WRITE, diagnosis.UNIQUE_INDEX, diagnosis.RESERVATION,
                 diagnosis.PUT_IT_LAST, diagnosis.STATE_CHECK):  # fmt: skip
        assert word in PAGE


SAID = {"lost": "lost", "delivered again": "redelivered", "a retry": "retried"}


@pytest.mark.parametrize("death", ["child", "machine"])
def test_the_page_says_of_each_kind_of_task_what_the_table_of_redelivery_says(death):
    section = PAGE.split("| the task | the pool child dies")[1].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines()[2:]]
    assert len(rows) == 5
    for task, *cells in rows:
        options = Options(
            acks_late="acks_late" in task,
            reject_on_worker_lost="reject_on_worker_lost" in task,
            acks_on_failure=True,
            retry_on_worker_lost="retry_on_worker_lost" in task,
            max_retries=3,
        )
        cell = cells[["child", "machine"].index(death)]
        assert decide(options, death).kind == next(kind for said, kind in SAID.items() if cell.startswith(said)), task
