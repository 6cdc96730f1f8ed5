"""pytest-celery's worker node over a real process instead of a container: ``celery worker`` in a group of its own."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import ClassVar

import psutil
from pytest_celery import CeleryTestWorker

from support.waiting import eventually

READY = " ready."


class WorkerProcess:
    """Duck-types what ``CeleryTestNode`` touches of a container."""

    #: those whose log is still there, for the report of a test that fails
    known: ClassVar[list["WorkerProcess"]] = []

    def __init__(self, *options, app="shop", name="worker", python=sys.executable, env=None, cwd=None):
        self.options, self.app, self.name, self.python = options, app, name, python
        self.env = {**os.environ, **(env or {})}
        self.cwd = cwd
        self.starts = 0
        descriptor, self.log_path = tempfile.mkstemp(prefix=f"once-more-{name}-", suffix=".log")
        os.close(descriptor)
        self.known.append(self)
        self.start()

    @property
    def id(self):
        return self.name

    def start(self):
        command = [self.python, "-m", "celery", "-A", self.app, "worker", "-l", "INFO", "-n", f"{self.name}@h",
                   "--without-gossip", "--without-mingle", *self.options]  # fmt: skip
        self.starts += 1
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self.env, cwd=self.cwd, start_new_session=True)

    @property
    def status(self):
        return "running" if self.process.poll() is None else "exited"

    def ready(self):
        eventually(self._is_ready, within=60, what=f"worker {self.name}: {self.log_path}")
        return True

    def _is_ready(self):
        if self.status == "exited":
            raise AssertionError(f"worker {self.name} exited with {self.process.returncode}:\n{self.logs()}")
        return self.logs().count(READY) >= self.starts

    def logs(self):
        return Path(self.log_path).read_text(errors="replace")

    def kill(self, signal="SIGKILL"):
        os.kill(self.process.pid, _number(signal))

    def restart(self, timeout=None):
        self.kill_group()
        self.start()
        self.ready()

    def reload(self):
        self.process.poll()

    @property
    def children(self):
        """Process ids of the pool."""
        try:
            return [child.pid for child in psutil.Process(self.process.pid).children()]
        except psutil.NoSuchProcess:
            return []

    def signal_group(self, name):
        """The main process and its pool at once, as a container's or a machine's end is."""
        os.killpg(self.process.pid, _number(name))

    def kill_group(self):
        try:
            self.signal_group("SIGCONT")
            self.signal_group("SIGKILL")
        except ProcessLookupError:
            pass
        self.process.wait()

    def teardown(self):
        self.kill_group()
        self.known.remove(self)
        os.unlink(self.log_path)

    def version(self):
        return "process"

    def log_level(self):
        return "INFO"

    def worker_name(self):
        return self.name

    def worker_queue(self):
        return "celery"


class WorkerNode(CeleryTestWorker):
    def hostname(self):
        return f"{self.worker_name}@h"


def _number(name):
    return name if isinstance(name, int) else getattr(signal, name)
