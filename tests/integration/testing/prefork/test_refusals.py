"""What a forked worker cannot do is said in a sentence, before anything is waited for."""

import pytest
from celery import Celery
from support.forked_worker import steps, three_steps, watch

from celery_once_more import ConfigurationError, UniqueTask
from celery_once_more.testing.errors import CrashTestError
from celery_once_more.testing.worker import PreforkWorker

pytest_plugins = ["support.app_fixtures"]


def test_a_call_whose_lock_is_held_is_not_published_and_says_so(app, worker):
    task = app.task(bind=True, base=UniqueTask, lock="until_executed", unique_across_queues=True, name="app.unique", shared=False,
                    lazy=False)(three_steps)  # fmt: skip
    first = task.delay("evt")
    with pytest.raises(CrashTestError, match=f"another call, {first.id}, holds its lock"):
        worker.deliver(task, ("evt",))


def test_a_broker_in_memory_is_refused():
    app = Celery("memory", broker="memory://", set_as_current=False)
    with pytest.raises(ConfigurationError, match=r"broker_write_url is memory://.*which no other process reaches"):
        PreforkWorker(app, watch=watch)


def test_eager_mode_is_refused(make_app):
    with pytest.raises(ConfigurationError, match="turn task_always_eager off"):
        PreforkWorker(make_app(task_always_eager=True), watch=watch)


def test_a_task_of_another_app_is_refused(app, worker, make_app):
    with pytest.raises(CrashTestError, match="is no task of the app"):
        worker.deliver(steps(make_app("other")))


def test_a_worker_that_cannot_start_says_why(make_app, nowhere):
    app = make_app()
    app.conf.broker_url = app.conf.broker_read_url = app.conf.broker_write_url = nowhere
    task = steps(app)
    with pytest.raises(CrashTestError, match=r"the broker redis:.* does not answer: .*refused"):
        PreforkWorker(app, watch=watch).deliver(task)


def test_a_worker_that_ends_at_its_start_says_why(app):
    def no_way():
        raise RuntimeError("no way to forget")

    with (
        pytest.raises(CrashTestError, match=r"(?s)ended at its start with status 1: its log ends with.*no way to forget"),
        PreforkWorker(app, watch=watch, forget=no_way) as worker,
    ):
        worker.deliver(steps(app))


def test_a_watcher_that_fails_is_told(app):
    def broken(run):
        raise RuntimeError("no watcher today")

    with PreforkWorker(app, watch=broken) as worker:
        delivery = worker.deliver(steps(app))
    assert delivery.outcome == "hung"
    assert "no watcher today" in delivery.trouble
