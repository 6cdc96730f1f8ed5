"""A forked worker leaves nothing behind: no process, no queue, no change to what the test and the user have."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
from support.forked_worker import LATE, steps, watch
from support.waiting import eventually

from celery_once_more.testing.worker import PreforkWorker

pytest_plugins = ["support.app_fixtures"]


def test_the_users_own_queue_and_unacknowledged_messages_are_left_alone(app, clean_redis):
    broker = clean_redis.client(0)
    task = steps(app)
    task.delay()
    before = {key: broker.dump(key) for key in broker.keys("*")}
    with PreforkWorker(app, watch=watch) as worker:
        assert worker.deliver(task).outcome == "ended"
        assert worker.deliver(task, arm=1).outcome == "lost"
    assert {key: broker.dump(key) for key in broker.keys("*")} == before


def test_a_run_that_hangs_is_killed_at_its_deadline_and_named_and_the_next_call_gets_a_new_worker(app, clean_redis):
    @app.task(shared=False, lazy=False, acks_late=True)
    def hangs(how):
        if how == "hang":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            time.sleep(600)

    with PreforkWorker(app, watch=watch, deadline_s=8) as worker:
        delivery = worker.deliver(hangs, ("hang",))
        assert delivery.outcome == "hung"
        assert "not over after 8 s (run 1 did not end)" in delivery.trouble
        eventually(lambda: not psutil.pid_exists(delivery.runs[0].pid) or zombie(delivery.runs[0].pid))
        assert worker.deliver(hangs, ("do not",)).outcome == "ended"
    assert not clean_redis.client(0).keys()


def zombie(pid):
    return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def left(group):
    """Processes of a group that live."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            pass
    return found


def test_no_process_is_left_when_the_worker_closes(app):
    before = psutil.Process().children()
    with PreforkWorker(app, watch=watch) as worker:
        run = worker.deliver(steps(app, **LATE), arm=1).runs[-1]
        group = os.getpgid(run.pid)
        assert len(left(group)) == 2
    eventually(lambda: not left(group), what="killed processes that are gone")
    assert psutil.Process().children() == before


TEST_THAT_IS_KILLED = """
    import os, signal, sys
    from contextlib import contextmanager, nullcontext
    from celery import Celery
    from celery_once_more.testing.worker import PreforkWorker

    app = Celery("killed", broker=sys.argv[1])

    @app.task(shared=False)
    def group():
        with open(sys.argv[2], "w") as told:
            told.write(str(os.getpgrp()))

    with PreforkWorker(app, watch=lambda run: nullcontext()) as worker:
        worker.deliver(group)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_worker_dies_with_the_process_of_the_test(clean_redis, tmp_path):
    script, told = tmp_path / "killed.py", tmp_path / "told"
    script.write_text(textwrap.dedent(TEST_THAT_IS_KILLED))
    done = subprocess.run([sys.executable, str(script), clean_redis.url(0), str(told)], timeout=120, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    eventually(lambda: not left(int(told.read_text())), what="nothing left of the worker")


def test_a_connection_of_the_test_still_works_after_the_fork(app, clean_redis):
    """The worker closes what it inherited: that must not be the test's own."""
    client = clean_redis.client(0)
    number = client.client_id()
    with app.connection_for_write() as connection, PreforkWorker(app, watch=watch) as worker:
        connection.ensure_connection()
        assert worker.deliver(steps(app)).outcome == "ended"
        assert client.client_id() == number
