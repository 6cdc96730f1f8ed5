"""A job whose undisturbed life has several deliveries may die in each of them."""

import celery
import pytest
from celery.exceptions import Reject
from sqlalchemy import update
from support.books import Books, accounts

from celery_once_more.reservations import REPEAT, Reservations
from celery_once_more.testing import CrashTestError, crash_point
from celery_once_more.testing.crash_points import CrashPoints

LATE = {"acks_late": True, "reject_on_worker_lost": True}
WAYS = pytest.mark.parametrize("die", ["kill", "raise"])


@pytest.fixture
def check(app, world, crash_points):
    def check(body, *, by=crash_points, task=None, **options):
        made = app.task(body, name=body.__name__, bind=True, **LATE, **(task or {}))
        return by.check(made, setup=world.empty, state=world.look, **options)

    return check


@pytest.fixture
def books(engine, far_side):
    return Books(engine, far_side("neither"), far_side("honours_key"))


def outcomes(report):
    return [(result.scenario, result.point.delivery, str(result.point), result.outcome) for result in report.results]


def failed(report):
    return [outcome[:3] for outcome in outcomes(report) if outcome[3] != "equal"]


@WAYS
def test_a_relative_write_of_a_retry_is_found_and_named(app, books, crash_points, die):
    @app.task(bind=True, **LATE)
    def adds(self):
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        with books.begin() as tx:
            tx.execute(update(accounts).values(balance=accounts.c.balance + 1))

    report = crash_points.check(adds, setup=books.seed, state=books.look, die=die)
    found = next(result for result in report.failures if str(result.point) == "after COMMIT")
    assert found.point.delivery == 2
    assert [diagnosis.fault for diagnosis in found.diagnoses] == ["a relative write"]
    assert found.differences == ["accounts: missing: (101,)", "accounts: not in the undisturbed run: (102,)"]
    assert [(life.message.retries, life.message.redelivered, life.died) for life in found.lives] == [
        (0, False, False), (1, False, True), (1, True, False),
    ]  # fmt: skip


def begins_then_goes_on(world):
    """The first delivery only looks; the second does something twice where it dies in between."""

    def job(self):
        crash_point("begin")
        if self.request.retries == 0:
            raise self.retry(countdown=3600)
        if "done" not in world.look():
            world.write("begun")
            crash_point("begun")
            world.write("done")

    return job


@WAYS
def test_places_are_numbered_on_and_a_name_comes_again(check, world, die):
    report = check(begins_then_goes_on(world), die=die)
    assert [(point.number, point.delivery, str(point)) for point in report.points] == [
        (1, 1, "begin"), (2, 1, "before job"), (3, 1, "after job"), (4, 2, "begin #2"), (5, 2, "begun"), (6, 2, "after return"),
    ]  # fmt: skip
    assert failed(report) == [("killed", 2, "begun")]
    told = str(report)
    assert "The undisturbed run has 2 deliveries: the next begins at place 4." in told
    assert "5. killed at begun in delivery 2: wrong" in told
    story = told[told.index("5. killed") :].splitlines()
    lines = [line.split("test_later")[0].split() for line in story if line.startswith(("  delivery", "   "))]
    assert [line[:3] for line in lines[:10]] == [
        ["delivery", "1"], ["1", "begin"], ["2", "before", "job"], ["3", "after", "job"], ["ended", "as", "RETRY:"],
        ["delivery", "2", "(retry"], ["4", "begin", "#2"], ["5", "begun"], ["***", "killed", "here"],
        ["delivery", "3", "(redelivered,"],
    ]  # fmt: skip


@WAYS
@pytest.mark.parametrize(
    ("points", "tried"),
    [([5], ["begun"]), (["begin"], ["begin", "begin #2"]), (["begin #2"], ["begin #2"]), (["begun"], ["begun"])],
)
def test_places_are_chosen_by_number_and_name(check, world, die, points, tried):
    report = check(begins_then_goes_on(world), die=die, points=points)
    assert [str(result.point) for result in report.results] == tried
    assert "not reached" not in report.counts()


def test_the_command_line_chooses_one_of_a_later_delivery(check, world):
    report = check(begins_then_goes_on(world), by=CrashPoints(only=5))
    assert failed(report) == [("killed", 2, "begun")]


@WAYS
def test_what_autoretry_for_delivers_again_is_killed(check, world, die):
    def job(self):
        crash_point("begin")
        if self.request.retries < 2:
            raise ConnectionError
        world.write("done")
        crash_point("done")

    report = check(job, task={"autoretry_for": (ConnectionError,), "retry_backoff": True}, die=die, points=["begin", "done"])
    assert outcomes(report) == [("killed", 1, "begin", "equal"), ("killed", 2, "begin #2", "equal"),
                                ("killed", 3, "begin #3", "equal"), ("killed", 3, "done", "wrong")]  # fmt: skip
    assert "3 deliveries: the next begins at place 4, 7." in str(report)


@WAYS
def test_what_a_message_that_goes_back_does_later_is_killed(check, world, die):
    def job(self):
        crash_point("begin")
        if not self.request.delivery_info["redelivered"]:
            raise Reject("later", requeue=True)
        world.write("done")
        crash_point("done")

    report = check(job, die=die)
    assert failed(report) == [("killed", 2, "done"), ("killed", 2, "after return")]


def test_a_job_that_is_put_off_is_killed_when_it_comes_again(app, books, crash_points):
    reservations = Reservations.sqlalchemy(books.engine)
    reservations.create_table()
    held = []

    def setup():
        """Somebody else has the key, who never comes back."""
        books.seed()
        with books.begin() as tx:
            tx.exec_driver_sql("DELETE FROM once_more_reservation")
        held.append(reservations.reserve("charge", on_unknown=REPEAT, lease=60))
        held[-1].__enter__()

    @app.task(bind=True, **LATE)
    def charges(self):
        reservations.run("charge", lambda _: books.bank.post("charge")["id"], on_unknown=REPEAT, lease=60)
        with books.begin() as tx:
            books.set_balance(tx, 95)

    report = crash_points.check(charges, setup=setup, state=books.look)
    assert "The undisturbed run has 2 deliveries" in str(report)
    assert failed(report)[0] == ("killed", 2, "after POST /charge")
    assert failed(report)[-1] == ("killed", 2, "before COMMIT #3")


def test_a_rival_comes_in_a_later_delivery(check, world):
    def job(self):
        crash_point("begin")
        if self.request.retries == 0 and not world.look():
            world.write("looked at")
            raise self.retry(countdown=0)
        done = world.look()
        crash_point("between")
        if "done" not in done:
            world.write("done")

    report = check(job, rival=True)
    assert failed(report) == [("rival", 2, "between")]
    found = report.failures[0]
    assert [(life.message.retries, life.message.redelivered) for life in found.lives] == [(0, False), (1, False), (1, True)]
    assert [life.frozen_at for life in found.lives] == [None, 2, None]
    assert [point.number for point in found.lives[1].points] == [point.number for point in found.lives[2].points]
    assert "killed" not in found.title
    assert "rival at between in delivery 2" in str(report)


@WAYS
def test_second_deaths_follow_one_in_a_later_delivery(check, world, die):
    def job(self):
        crash_point("begin")
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        tries = world.look().count("try")
        if tries < 9:
            world.write("try")
            crash_point("tried")
            world.empty()
            for _ in range(9 if tries < 2 else 10):
                world.write("try")

    one = check(job, die=die)
    assert one.ok, one
    two = check(job, die=die, depth=2, budget=1000, points=["begin #2", "tried"])
    assert [(r.point.delivery, str(r.point), r.second.delivery, str(r.second)) for r in two.failures] == [
        (2, "tried", 3, "tried")
    ], two


@WAYS
def test_second_deaths_reach_each_delivery_of_the_recovery(check, world, die):
    """After a death in the first delivery, the second of the recovery dies too."""

    def job(self):
        crash_point("begin")
        redelivered = self.request.delivery_info["redelivered"]
        if self.request.retries == 0:
            if redelivered:
                world.write("careless")
            raise self.retry(countdown=0)
        careless = "careless" in world.look()
        if "done" not in world.look() or careless:
            if careless and redelivered:
                world.write("done")
            else:
                world.empty()
                world.write("done")
                if careless:
                    world.write("careless")
        crash_point("done")
        world.path.write_text("".join(f"{line}\n" for line in world.look() if line != "careless"))

    report = check(job, die=die, depth=2, budget=1000, points=["begin"])
    assert [(r.point.delivery, str(r.point), r.second.delivery, str(r.second)) for r in report.failures] == [
        (1, "begin", 3, "done")
    ], report


@WAYS
def test_a_job_that_retries_for_ever_is_refused(check, world, die):
    def job(self):
        crash_point("begin")
        raise self.retry(countdown=0)

    with pytest.raises(CrashTestError, match="the undisturbed run was not settled after 20 deliveries"):
        check(job, task={"max_retries": None}, die=die)


@pytest.mark.skipif(not hasattr(celery.Task, "retry_on_worker_lost"), reason="Celery 5.7 and later")
def test_where_the_retries_are_used_up_the_message_is_lost(check, world):
    def job(self):
        crash_point("begin")
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        if not world.look():
            world.write("done")

    report = check(job, task={"retry_on_worker_lost": True, "max_retries": 1}, points=["begin"])
    assert [result.verdicts for result in report.results] == [
        {"child": "equal", "machine": "equal"}, {"child": "lost", "machine": "equal"},
    ]  # fmt: skip


def test_a_retry_that_a_dead_run_had_published_comes_as_well(check, world):
    def job(self):
        if self.request.retries < 14:
            raise self.retry(countdown=0)
        world.empty()
        world.write("done")

    report = check(job, task={"max_retries": None}, points=["after job #1", "after job #10"], rival=True)
    assert report.ok, report
    assert len(report.results[0].lives) == 15 + 15


def test_neither_a_retry_nor_a_reservations_own_row_is_blamed(app, books, engine, crash_points):
    """The bank honours no key, so that REPEAT was the wrong word."""
    reservations = Reservations.sqlalchemy(engine)
    reservations.create_table()

    def setup():
        books.seed()
        with engine.begin() as tx:
            tx.exec_driver_sql("DELETE FROM once_more_reservation")

    @app.task(bind=True, **LATE)
    def charges(self):
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        reservations.run("charge", lambda r: books.bank.post("charge", key=r.dedup_key)["id"], on_unknown=REPEAT, lease=60)

    report = crash_points.check(charges, setup=setup, state=books.look)
    assert str(report.failures[0].point) == "after POST /charge"
    for result in report.failures:
        (diagnosis,) = result.diagnoses
        assert diagnosis.text.startswith("POST /charge was sent twice")
        assert "does the far side honour it?" in diagnosis.text
