"""Each outcome of a scenario, in each way of dying: equal, parked, lost, wrong, not reached."""

import os
import time
from pathlib import Path

import psutil
import pytest
from celery.exceptions import Reject
from support.waiting import eventually

from celery_once_more.testing import crash_point


def lives(pid):
    try:
        return psutil.Process(int(pid)).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


LATE = {"acks_late": True, "reject_on_worker_lost": True}


@pytest.fixture
def check(app, world, crash_points):
    def check(body, *, task=LATE, bind=False, **options):
        made = app.task(body, name=body.__name__, bind=bind, **task)
        return crash_points.check(made, setup=world.empty, state=world.look, **options)

    return check


def outcomes(report):
    return [(result.scenario, str(result.point), result.outcome) for result in report.results]


WAYS = pytest.mark.parametrize("die", ["kill", "raise"])


@WAYS
def test_what_is_done_once_and_looked_at_is_equal_everywhere(check, world, die):
    def careful():
        crash_point("look")
        if not world.look():
            world.write("done")
        crash_point("done")

    report = check(careful, die=die)
    assert report.ok
    assert outcomes(report) == [("killed", "look", "equal"), ("killed", "done", "equal"), ("killed", "after return", "equal")]


@WAYS
def test_what_is_done_twice_is_wrong_after_its_effect(check, world, die):
    def careless():
        crash_point("before")
        world.write("done")
        crash_point("after")

    report = check(careless, die=die)
    assert [outcome for *_, outcome in outcomes(report)] == ["equal", "wrong", "wrong"]
    first = report.failures[0]
    assert (first.point.what, first.differences) == ("after", ["2 instead of 1", "doubled: 'done'"])
    assert first.diagnoses[0].fault == "an effect that no library shows"


def test_each_turn_of_a_loop_is_a_place_of_its_own(check, world):
    def loops():
        for turn in range(3):
            if str(turn) not in world.look():
                world.write(turn)
            crash_point("turn")

    report = check(loops)
    assert [str(point) for point in report.points] == ["turn", "turn #2", "turn #3", "after return"]
    assert report.ok


@WAYS
@pytest.mark.parametrize(
    ("task", "child", "machine"),
    [
        ({}, "lost", "lost"),
        ({"acks_late": True}, "lost", "equal"),
        ({"acks_late": True, "reject_on_worker_lost": True}, "equal", "equal"),
    ],
)
def test_a_message_that_celery_would_not_deliver_again_is_lost(check, world, die, task, child, machine):
    def careful():
        crash_point("look")
        if not world.look():
            world.write("done")

    report = check(careful, task=task, die=die)
    assert all(result.verdicts == {"child": child, "machine": machine} for result in report.results)
    assert report.ok is (child == machine == "equal")
    assert any(
        f"When the child dies, the message is {'lost' if child == 'lost' else 'redelivered'}" in line for line in report.fates
    )
    survived = check(careful, task=task, die=die, deaths=["machine"])
    assert survived.ok is (machine == "equal")


class NobodyKnows(Exception):
    pass


@WAYS
def test_a_job_that_waits_for_a_person_is_parked_and_right_only_where_that_was_said(check, world, die):
    def asks():
        if "begun" in world.look():
            raise NobodyKnows
        world.write("begun")
        crash_point("begun")
        world.write("done")

    report = check(asks, die=die, parked=NobodyKnows)
    assert [outcome for *_, outcome in outcomes(report)] == ["parked", "parked"]
    assert not report.ok
    assert check(asks, die=die, parked=NobodyKnows, parked_ok=True).ok
    here = check(asks, die=die, parked=(NobodyKnows,), parked_ok=lambda point: point.what == "begun")
    assert [result.ok for result in here.results] == [True, False]
    assert [outcome for *_, outcome in outcomes(check(asks, die=die))] == ["wrong", "wrong"]


@WAYS
def test_a_place_that_was_named_and_is_not_come_by_is_a_failure(check, world, die):
    def careful():
        crash_point("look")
        crash_point("look")

    report = check(careful, die=die, points=["look #2", "lok", 1])
    assert outcomes(report) == [("killed", "lok", "not reached"), ("killed", "look", "equal"), ("killed", "look #2", "equal")]
    assert not report.ok
    assert "the nearest is 'look'" in str(report)


@WAYS
def test_a_retry_is_delivered_until_the_job_has_settled(check, world, die):
    def retries(self):
        crash_point("begin")
        if self.request.retries < 2:
            raise self.retry(countdown=3600)
        if not world.look():
            world.write(f"at try {self.request.retries}")

    report = check(retries, bind=True, die=die)
    assert report.ok, report
    assert [life.message.retries for life in report.results[0].lives] == [0, 0, 1, 2]
    assert "The undisturbed run has 3 deliveries" in str(report)


@WAYS
def test_a_message_that_is_given_back_comes_again(check, world, die):
    def gives_back(self):
        crash_point("begin")
        if not self.request.delivery_info["redelivered"]:
            raise Reject("later", requeue=True)
        world.empty()
        world.write("done")

    assert check(gives_back, bind=True, die=die).ok


def test_a_job_that_never_settles_is_wrong(check, world):
    def for_ever(self):
        crash_point("begin")
        if self.request.delivery_info["redelivered"]:
            raise Reject("later", requeue=True)
        world.write("done")

    report = check(for_ever, bind=True)
    assert "was not settled after 40 deliveries" in report.failures[0].differences[0]


def test_a_recovery_that_hangs_is_named_with_its_last_place_and_leaves_no_process(check, world):
    def waits(self):
        crash_point("begin")
        if self.request.delivery_info["redelivered"]:
            child = os.fork()
            with open(f"{world.path}.pids", "a") as pids:
                pids.write(f"{os.getpid()}\n")
            time.sleep(600 + child)
        world.write("done")

    report = check(waits, bind=True, deadline=1.5)
    pids = Path(f"{world.path}.pids").read_text().split()
    assert len(pids) == 4
    eventually(lambda: not any(map(lives, pids)), what="the end of all its processes")
    assert report.failures[0].differences == [
        "the task did not come to an end before its deadline of 1.5 s; the last place it reached was begin"
    ]
    assert "was not over at the deadline of the scenario" in str(report)


def test_a_rival_that_overtakes_and_an_owner_that_comes_back_are_seen(check, world):
    def looks_then_writes():
        done = world.look()
        crash_point("between")
        if not done:
            world.write("done")

    report = check(looks_then_writes, rival=True)
    assert outcomes(report) == [("killed", "between", "equal"), ("killed", "after return", "equal"),
                                ("rival", "between", "wrong"), ("rival", "after return", "equal")]  # fmt: skip
    assert "stood still here" in str(report)


@WAYS
def test_second_deaths_find_what_one_death_does_not(check, world, die):
    def counts_its_tries(self):
        """Right after one death: the second run looks. A run that dies while it looks leaves the door open for the third."""
        seen = world.look()
        crash_point("look")
        if "door" not in seen:
            world.write("door")
            crash_point("door")
            world.write("done")
        elif "done" not in seen:
            world.write("repaired") if "repaired" not in seen else world.write("twice")
            crash_point("repaired")
            world.write("done")
        world.path.write_text("".join(f"{line}\n" for line in world.look() if line not in ("repaired",)))

    one = check(counts_its_tries, bind=True, die=die)
    assert one.ok, one
    two = check(counts_its_tries, bind=True, die=die, depth=2)
    assert [(r.point.what, r.second.what) for r in two.failures] == [("door", "repaired")]
    assert two.failures[0].differences == ["3 instead of 2", "not in the undisturbed run: 'twice'"]


def test_a_sample_of_second_deaths_is_drawn_by_its_seed(check, world):
    def loops():
        for turn in range(4):
            crash_point("turn")
            if str(turn) not in world.look():
                world.write(turn)

    def drawn(seed):
        report = check(loops, depth=2, budget=5, seed=seed)
        assert f"5 of {report.second_deaths}" in str(report)
        assert f"--crash-seed={report.seed}" in str(report)
        return [(r.point.number, r.second.number) for r in report.results if r.scenario == "killed twice"]

    assert drawn(7) == drawn(7)
    assert len({tuple(drawn(seed)) for seed in (7, 8, 9)}) > 1
