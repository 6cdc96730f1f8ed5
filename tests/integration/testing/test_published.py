"""The messages that a job publishes: no state shows them, and one that is never sent is a fault."""

import pytest
from sqlalchemy import text

from celery_once_more.testing import diagnosis

LATE = {"acks_late": True, "reject_on_worker_lost": True}


@pytest.fixture
def check(app, engine, crash_points):
    """``check(job, …)``: a job gets ``first()``, true where no run has committed before, and the task that comes next."""
    with engine.begin() as tx:
        tx.execute(text("CREATE TABLE once (ref INTEGER UNIQUE)"))

    def first():
        with engine.begin() as tx:
            return tx.execute(text("INSERT INTO once VALUES (1) ON CONFLICT DO NOTHING")).rowcount == 1

    def setup():
        with engine.begin() as tx:
            tx.execute(text("DELETE FROM once"))

    def state():
        with engine.connect() as tx:
            return tx.execute(text("SELECT * FROM once")).all()

    @app.task(name="next")
    def next_one(turn):
        pass

    def check(job, **options):
        def run(self):
            job(self, first, next_one)

        task = app.task(run, name=job.__name__, bind=True, **LATE)
        return crash_points.check(task, setup=setup, state=state, **options)

    return check


def publishes_if_it_was_first(task, first, next_one):
    if first():
        next_one.delay(1)


def publishes_always(task, first, next_one):
    first()
    next_one.delay(1)


def publishes_what_is_left(task, first, next_one):
    for turn in range(2 if first() else 1):
        next_one.delay(turn)


def retries_if_it_was_first(task, first, next_one):
    if first():
        raise task.retry(countdown=1)


def hands_over(task, first, next_one):
    first()
    raise task.replace(next_one.s(1))


@pytest.mark.parametrize("die", ["kill", "raise"])
def test_a_task_that_replaces_itself_by_another_is_over(check, die):
    report = check(hands_over, die=die)
    assert report.ok, report
    assert [life.end.state for life in report.results[-1].lives if life.end] == ["IGNORED"]


@pytest.mark.parametrize("die", ["kill", "raise"])
def test_a_message_that_no_run_publishes_is_wrong_though_the_state_is_right(check, die):
    report = check(publishes_if_it_was_first, die=die)
    assert [str(result.point) for result in report.failures] == ["after COMMIT", "before next"]
    assert report.failures[0].differences == ["published next 0 times instead of 1"]
    (found,) = report.failures[0].diagnoses
    assert (found.fault, found.remedy) == ("one guard for several effects", diagnosis.RESERVATION)


@pytest.mark.parametrize("job", [publishes_always, retries_if_it_was_first])
def test_a_message_that_is_published_again_and_a_retry_that_is_not_are_no_faults(check, job):
    report = check(job, rival=True)
    assert report.ok, report


def test_one_of_several_messages_is_missed(check):
    report = check(publishes_what_is_left, points=["after COMMIT"])
    assert report.failures[0].differences == ["published next 1 times instead of 2"]
