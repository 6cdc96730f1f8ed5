"""A worker that is forked from the test runs the tasks of this file, dies where it is told to, and is followed to the end."""

import os
import sys
import time

import psutil
import pytest
from celery import VERSION
from celery.exceptions import Ignore, Reject
from support.forked_worker import ALL, LATE, steps, three_steps, told, watch
from support.waiting import eventually

from celery_once_more import UniqueTask, crash, current_lock
from celery_once_more.testing.redelivery import fate
from celery_once_more.testing.worker import PreforkWorker

pytest_plugins = ["support.app_fixtures"]
CELERY_57 = VERSION >= (5, 7)


def test_an_undisturbed_call_runs_once_in_a_pool_child_with_its_watcher(app, worker):
    delivery = worker.deliver(steps(app))
    assert (delivery.outcome, told(delivery)) == ("ended", [ALL])
    (run,) = delivery.runs
    assert (run.state, run.redelivered, run.retries, run.fate) == ("SUCCESS", False, 0, None)
    assert psutil.Process(run.pid).ppid() not in (0, os.getpid())
    assert crash.watcher is None


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_first_delivery_dies_at_the_number_given_and_the_second_runs_through(app, worker, number):
    task = steps(app, **LATE)
    delivery = worker.deliver(task, arm=number)
    assert delivery.outcome == "ended"
    assert told(delivery) == [ALL[:number], ALL]
    first, second = delivery.runs
    assert (first.state, first.fate) == (None, fate(task, "child").kind)
    assert (second.state, second.redelivered) == ("SUCCESS", True)


def test_a_call_that_celery_does_not_redeliver_is_lost(app, worker):
    task = steps(app)
    delivery = worker.deliver(task, arm=1)
    assert (delivery.outcome, told(delivery)) == ("lost", [ALL[:1]])
    assert delivery.runs[0].fate == fate(task, "child").kind
    assert "WorkerLostError" in delivery.runs[0].error


@pytest.mark.skipif(not CELERY_57, reason="retry_on_worker_lost is new in Celery 5.7")
def test_a_call_that_celery_retries_for_a_lost_process_runs_again_at_once(app, worker):
    task = steps(app, retry_on_worker_lost=True)
    assert task.default_retry_delay == 180
    delivery = worker.deliver(task, arm=2)
    assert (delivery.outcome, told(delivery)) == ("ended", [ALL[:2], ALL])
    assert delivery.runs[0].fate == fate(task, "child").kind == "retried"
    assert [(run.redelivered, run.retries) for run in delivery.runs] == [(False, 0), (False, 1)]


def test_a_call_that_retries_itself_is_followed_to_its_end(app, worker):
    @app.task(bind=True, shared=False, lazy=False)
    def fails_twice(self):
        crash.crash_point(f"try {self.request.retries}")
        if self.request.retries < 2:
            raise self.retry(countdown=3600)
        raise ValueError("in vain")

    delivery = worker.deliver(fails_twice, arm=7)
    assert [(run.state, run.told) for run in delivery.runs] == [("RETRY", ["at try 0"]), ("RETRY", ["at try 1"]),
                                                                ("FAILURE", ["at try 2"])]  # fmt: skip
    assert (delivery.outcome, delivery.runs[-1].error) == ("ended", "ValueError: in vain")


#: how a body ends -> the states of its runs and the outcome, for late acknowledgement
ENDS = {
    "requeue": (["REJECTED", "SUCCESS"], "ended"),
    "reject": (["REJECTED"], "ended"),
    "ignore": (["IGNORED"], "ended"),
    "exit": ([None, "SUCCESS"], "ended") if CELERY_57 else ([None], "lost"),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_call_is_followed_whatever_end_its_first_run_comes_to(app, worker, how):
    @app.task(bind=True, shared=False, lazy=False, **LATE)
    def ends(self):
        if self.request.delivery_info["redelivered"]:
            return
        if how == "exit":
            sys.exit(3)
        raise Ignore() if how == "ignore" else Reject(how, requeue=how == "requeue")

    delivery = worker.deliver(ends)
    assert ([run.state for run in delivery.runs], delivery.outcome) == ENDS[how], delivery


def test_a_call_over_its_time_limit_has_failed(app, worker):
    @app.task(shared=False, lazy=False, time_limit=1)
    def endless():
        time.sleep(600)

    delivery = worker.deliver(endless)
    assert delivery.outcome == "lost"
    assert "TimeLimitExceeded" in delivery.runs[0].error


def test_one_worker_takes_one_call_after_another(app, worker):
    task = steps(app, **LATE)
    assert [len(worker.deliver(task, arm=arm).runs) for arm in (None, 2, None)] == [1, 2, 1]


def test_a_unique_task_keeps_its_lock_over_the_death_and_frees_it_at_the_end(app, worker):
    @app.task(bind=True, base=UniqueTask, lock="until_executed", unique_across_queues=True, shared=False, lazy=False, **LATE)
    def unique(self, key):
        crash.crash_point("inside")
        return str(self.lock_info(key).holder)

    for _ in range(2):
        delivery = worker.deliver(unique, ("evt",), arm=1)
        assert (delivery.outcome, [run.state for run in delivery.runs]) == ("ended", [None, "SUCCESS"])
        assert eventually(lambda: unique.lock_info("evt") is None)


def test_the_keeper_renews_the_lock_of_a_run_that_is_longer_than_its_lease(make_app):
    app = make_app(once_more_lease=0.6)

    @app.task(base=UniqueTask, lock="until_executed", shared=False, lazy=False)
    def long():
        end = time.monotonic() + 2
        while time.monotonic() < end:
            current_lock.check()
            time.sleep(0.05)

    with PreforkWorker(app, watch=watch) as worker:
        delivery = worker.deliver(long)
    assert (delivery.runs[-1].state, delivery.runs[-1].error) == ("SUCCESS", "")


def test_a_worker_of_rabbitmq_gives_the_message_back_as_well_and_its_queue_is_gone_afterwards(make_app, rabbitmq):
    app = make_app()
    app.conf.update(broker_url=rabbitmq.url, broker_read_url=rabbitmq.url, broker_write_url=rabbitmq.url)
    with app.connection_for_write() as connection, connection.SimpleQueue("the test's own") as own:
        own.put("still")
        with PreforkWorker(app, watch=watch) as worker:
            early, late = steps(app), app.task(bind=True, name="app.late", shared=False, lazy=False, **LATE)(three_steps)
            queue = worker.deliver(early).queue
            delivery = worker.deliver(late, arm=2)
            assert (delivery.outcome, told(delivery)) == ("ended", [ALL[:2], ALL])
            assert [run.redelivered for run in delivery.runs] == [False, True]
            assert worker.deliver(early, arm=2).outcome == "lost"
        assert own.get(timeout=10).payload == "still"
        with pytest.raises(connection.channel_errors, match="NOT_FOUND"):
            connection.channel().queue_declare(queue, passive=True)
