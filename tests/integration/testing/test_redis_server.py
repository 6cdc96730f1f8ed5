"""A Redis of a test's own: found, started, ended; and never somebody else's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import celery_once_more
from celery_once_more.testing.redis_server import ADVICE, NoRedis, RedisServer, checked_version, server_program


@pytest.fixture
def server(redis_server):
    server = RedisServer()
    yield server
    server.stop()


def test_it_is_there_without_pytest():
    code = "import sys, celery_once_more.testing.redis_server; sys.exit('pytest' in sys.modules)"
    root = str(Path(celery_once_more.__file__).parents[1])
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": root}).returncode == 0


def test_another_server_on_its_port_is_not_taken_for_it(server, redis_server):
    server.port = redis_server.port
    server.start()
    assert server.port != redis_server.port
    assert server.client(0).info("server")["process_id"] == server.process.pid


def test_stopped_it_leaves_neither_process_nor_folder(server):
    server.start()
    folder = server.folder
    assert os.path.isdir(folder)
    server.stop()
    assert server.process.poll() is not None
    assert not os.path.exists(folder)


def test_started_again_it_keeps_its_port(server):
    port = server.start().port
    server.kill()
    assert not server.answers()
    assert server.start().port == port
    assert server.answers()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_does_not_stop_it(server):
    server.start()
    pid = os.fork()
    if pid == 0:
        server.stop()
        os._exit(0)
    os.waitpid(pid, 0)
    assert server.answers()
    assert os.path.isdir(server.folder)


def test_a_program_that_ends_at_its_start_is_a_sentence(redis_server):
    server = RedisServer("--no-such-option", "1")
    with pytest.raises(NoRedis, match=r"ended at its start, with status 1"):
        server.start()
    server.stop()


def test_no_program_is_a_sentence(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert server_program() is None
    with pytest.raises(NoRedis, match=ADVICE):
        RedisServer().start()


def test_one_that_is_too_old_is_a_sentence(server, monkeypatch):
    client = server.start().client(0)
    assert checked_version(client)
    monkeypatch.setattr("celery_once_more.testing.redis_server.OLDEST", (99, 0))
    with pytest.raises(NoRedis, match=r"version .*; celery-once-more needs 99\.0 or later"):
        checked_version(client)
