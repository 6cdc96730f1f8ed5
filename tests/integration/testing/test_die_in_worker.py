"""``die="worker"``: the same check on a real prefork worker of the task's own app, with Celery's own redelivery and our locks."""

import os
import uuid

import pytest
from celery import Celery
from support.books import Books

from celery_once_more import UniqueTask
from celery_once_more.exceptions import ConfigurationError
from celery_once_more.testing import CrashTestError, assert_not_locked, crash_point


@pytest.fixture
def real(clean_redis):
    """An app whose broker and results are a real Redis."""
    url = f"redis://127.0.0.1:{clean_redis.port}"
    app = Celery(f"real-{uuid.uuid4().hex[:8]}", broker=f"{url}/0", backend=f"{url}/1", set_as_current=False)
    yield app
    app.close()


@pytest.fixture
def check(real, world, crash_points):
    def check(body, *, task, bind=False, **options):
        made = real.task(body, name=body.__name__, bind=bind, **task)
        return crash_points.check(made, setup=world.empty, state=world.look, die="worker", **options)

    return check


LATE = {"acks_late": True, "reject_on_worker_lost": True}


def test_a_right_job_is_equal_at_every_place(check, world):
    def careful():
        crash_point("look")
        if not world.look():
            world.write("done")
        crash_point("done")

    report = check(careful, task=LATE)
    assert report.ok, report
    assert [str(result.point) for result in report.results] == ["look", "done", "after return"]
    assert [life.message.redelivered for life in report.results[0].lives] == [False, True]
    assert [result.verdicts for result in report.results] == [{"child": "equal"}] * 3


def test_a_wrong_job_is_found_and_told(check, world):
    def careless():
        world.write("done")
        crash_point("after")

    report = check(careless, task=LATE)
    assert [result.outcome for result in report.results] == ["wrong", "wrong"]
    assert report.failures[0].differences == ["2 instead of 1", "doubled: 'done'"]
    assert "killed here" in str(report)


def test_what_celery_gives_up_is_lost(check, world):
    def careful():
        crash_point("look")
        world.write("done")

    report = check(careful, task={})
    assert {result.outcome for result in report.results} == {"lost"}


def test_a_unique_task_keeps_its_lock_for_the_redelivery_and_frees_it_in_the_end(real, check, world):
    def settled():
        crash_point("look")
        if not world.look():
            world.write("done")

    report = check(settled, task={**LATE, "base": UniqueTask, "lock": "until_executed"})
    assert report.ok, report
    assert_not_locked(real.tasks["settled"])


def test_a_job_on_a_database_dies_at_its_statements(real, crash_points, engine, far_side):
    books = Books(engine, far_side("honours_key"), far_side("honours_key"))

    @real.task(name="pays", **LATE)
    def pays(ref):
        books.bank.post("charge", key=str(ref), amount=5)
        with books.begin() as tx:
            books.set_balance(tx, 95)

    report = crash_points.check(pays, args=(42,), setup=books.seed, state=books.look, die="worker")
    assert report.ok, report
    assert [str(point) for point in report.points] == [
        "before POST /charge", "after POST /charge", "before UPDATE accounts", "after UPDATE accounts",
        "before COMMIT", "after COMMIT", "after return",
    ]  # fmt: skip


def test_what_a_worker_cannot_do_is_refused(app, check, world, crash_points):
    def job():
        crash_point("here")

    task = {"task": LATE}
    with pytest.raises(CrashTestError, match="rival=True"):
        check(job, rival=True, **task)
    with pytest.raises(CrashTestError, match="depth=2"):
        check(job, depth=2, **task)
    app.conf.update(broker_url="memory://", broker_read_url="memory://", broker_write_url="memory://")
    lonely = app.task(job, name="lonely")
    with pytest.raises(ConfigurationError, match="memory://"):
        crash_points.check(lonely, state=world.look, die="worker")


def test_a_process_that_the_job_starts_neither_dies_for_it_nor_is_numbered(check, world):
    def forks():
        child = os.fork()
        crash_point("look")
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        if not world.look():
            world.write("done")

    report = check(forks, task=LATE)
    assert report.ok, report
    assert [str(point) for point in report.points] == ["look", "after return"]


def test_of_a_job_that_retries_the_first_delivery_is_killed_only(check, world):
    def retries(self):
        crash_point("begin")
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        if not world.look():
            world.write("done")

    report = check(retries, task=LATE, bind=True)
    assert report.ok, report
    assert [str(point) for point in report.points] == ["begin", "before retries", "after retries"]
    assert "has 2 deliveries: no place is tried in those that follow the first" in str(report)
