"""Runs that end as nobody had asked for, processes that a job starts, and what a death leaves alone in the parent."""

import gc
import multiprocessing
import os
import signal
import sys

import pytest

from celery_once_more.testing import CrashTestError, crash_point

LATE = {"acks_late": True, "reject_on_worker_lost": True}


@pytest.fixture
def check(app, tmp_path, crash_points):
    """``check(job, …)``: a job gets a file in which it may write lines, and ``again``: its message is redelivered."""
    path = tmp_path / "done"

    def check(job, **options):
        def run(self):
            job(path, self.request.delivery_info["redelivered"])

        task = app.task(run, name=job.__name__, bind=True, **LATE)
        return crash_points.check(
            task,
            setup=lambda: path.write_text(""),
            state=path.read_text,
            **options,
        )

    return check


def fails(path, again):
    crash_point("begin")
    int("seven")


def exits(path, again):
    crash_point("begin")
    sys.exit(3)


def ends_its_process(path, again):
    crash_point("begin")
    os._exit(3)


def is_killed(path, again):
    crash_point("begin")
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (fails, "ended as FAILURE: ValueError: invalid literal for int() with base 10: 'seven' (test_unasked_ends.py:"),
        (exits, "ended with SystemExit: 3\n"),
        (ends_its_process, "ended its process with status 3"),
        (is_killed, "died of SIGTERM"),
    ],
)
def test_an_undisturbed_run_that_fails_is_told_with_how_and_where(check, job, told):
    with pytest.raises(CrashTestError) as refused:
        check(job)
    assert f"the undisturbed run {told}" in str(refused.value)


def test_an_undisturbed_run_that_hangs_is_waited_for_once(check, tmp_path):
    def hangs(path, again):
        with path.with_name("tries").open("a") as file:
            file.write("x")
        crash_point("begin")
        signal.pause()

    with pytest.raises(CrashTestError, match="before its deadline of 1 s; the last place it reached was begin"):
        check(hangs, deadline=1)
    assert (tmp_path / "tries").read_text() == "x"


def exits_the_second_time(path, again):
    crash_point("begin")
    if again:
        sys.exit(3)


def dies_the_second_time(path, again):
    crash_point("begin")
    if again:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(
    ("job", "told"), [(exits_the_second_time, "ended with SystemExit: 3"), (dies_the_second_time, "died of SIGTERM")]
)
def test_a_recovery_that_ends_by_itself_is_wrong_also_where_the_state_is_right(check, job, told):
    report = check(job, points=["begin"])
    assert report.failures[0].differences == [f"the task {told}"]
    assert told in str(report)
    assert str(report).count("*** killed here ***") == 1


def starts_a_process(path, again):
    def other():
        crash_point("in another process")
        path.write_text("done")

    process = multiprocessing.get_context("fork").Process(target=other)
    process.start()
    process.join()
    crash_point("joined")


def test_the_places_of_a_process_that_the_job_starts_are_not_the_jobs(check):
    report = check(starts_a_process, rival=True, deadline=10)
    assert [str(point) for point in report.points] == ["joined", "after return"]
    assert report.ok, report


def test_what_is_garbage_in_the_test_is_not_ended_in_a_run(check):
    class Shared:
        def __del__(self):
            if os.getpid() != here:
                path.write_text("ended")

    def collects(path_, again):
        nonlocal path
        path = path_
        gc.collect()
        crash_point("collected")

    path, here = None, os.getpid()
    gc.disable()
    try:
        shared = Shared()
        shared.itself = shared
        del shared
        report = check(collects)
    finally:
        gc.enable()
    assert report.ok, report
    assert path is None
