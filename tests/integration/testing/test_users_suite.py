"""A small test suite as a user has it, run by pytest of its own: what it leaves behind, and what it shows."""

import os
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest
from support.waiting import eventually

SUITE = """
import pytest
from celery import Celery
from sqlalchemy import create_engine, text

app = Celery("shop", broker="redis://127.0.0.1:1/0", backend="redis://127.0.0.1:1/1")


@pytest.fixture
def shop(tmp_path, far_side):
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    bank = far_side("honours_key")
    with engine.begin() as tx:
        tx.execute(text("CREATE TABLE payments (ref INTEGER UNIQUE)"))
        tx.execute(text("CREATE TABLE customers (points INTEGER)"))

    def setup():
        bank.reset()
        with engine.begin() as tx:
            tx.execute(text("DELETE FROM payments"))
            tx.execute(text("DELETE FROM customers"))
            tx.execute(text("INSERT INTO customers VALUES (0)"))

    def state():
        with engine.connect() as tx:
            found = {name: tx.execute(text(f"SELECT * FROM {name}")).all() for name in ("payments", "customers")}
        return {**found, "charged": bank.effects}

    yield engine, bank, setup, state
    engine.dispose()


@pytest.mark.parametrize("ref", range(4))
def test_right(shop, crash_points, ref):
    engine, bank, setup, state = shop

    @app.task(acks_late=True, reject_on_worker_lost=True, name=f"right_{ref}")
    def right(ref):
        with engine.begin() as tx:
            tx.execute(text("INSERT INTO payments VALUES (:ref) ON CONFLICT DO NOTHING"), {"ref": ref})
            tx.execute(text("UPDATE customers SET points = :ref"), {"ref": ref})
        bank.post("charge", key=str(ref), ref=ref)

    report = crash_points.check(right, args=(ref,), setup=setup, state=state, rival=True)
    assert report.ok, report


@pytest.mark.parametrize("ref", range(2))
def test_wrong(shop, crash_points, ref):
    engine, bank, setup, state = shop

    @app.task(acks_late=True, reject_on_worker_lost=True, name=f"wrong_{ref}")
    def wrong(ref):
        with engine.begin() as tx:
            tx.execute(text("UPDATE customers SET points = points + 1"))

    report = crash_points.check(wrong, args=(ref,), setup=setup, state=state)
    assert {d.fault for result in report.failures for d in result.diagnoses} == {"a relative write"}
"""


@pytest.fixture
def start(tmp_path):
    """``start(suite, *options)``: pytest in a process of its own, whose children can be told by the folder that they work in."""
    started = []

    def start(suite, *options):
        (tmp_path / "test_suite.py").write_text(textwrap.dedent(suite))
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "celery_once_more.testing.plugin", *options]
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        process = subprocess.Popen(
            command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def left_in(folder):
    """Processes that still work in this folder."""

    def works_there(process):
        try:
            return process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    return [process for process in psutil.process_iter() if works_there(process)]


def test_several_checks_at_once_pass_and_leave_no_process(start, tmp_path):
    printed, _ = start(SUITE, "-n", "2", "-q").communicate()
    assert "6 passed" in printed, printed
    assert left_in(tmp_path) == []


HANGS = """
import os
import time
from celery import Celery
from celery_once_more.testing import crash_point

app = Celery("shop", broker="memory://")


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
def hangs(self):
    crash_point("begin")
    if self.request.delivery_info["redelivered"]:
        open(f"hangs-{os.getpid()}", "w").close()
        time.sleep(600)


def test_it(crash_points):
    crash_points.check(hangs, state=lambda: 1, rival=True)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_a_check_that_is_broken_off_leaves_no_process(start, tmp_path, how):
    pytest_process = start(HANGS, "-q")
    eventually(lambda: list(tmp_path.glob("hangs-*")), what="a run that hangs")
    pytest_process.send_signal(how)
    pytest_process.communicate()
    eventually(lambda: left_in(tmp_path) == [], what="no process is left")
