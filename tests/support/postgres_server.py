"""A PostgreSQL of the tests' own: a process on a free loopback port, with its data in a temporary folder."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psycopg

from support.redis_server import free_port
from support.waiting import eventually

#: where Debian keeps the server's programs, one folder for each version
DEBIAN = Path("/usr/lib/postgresql")
NEEDED = ("initdb", "postgres")


def programs():
    """The folder of ``initdb`` and ``postgres``, from the PATH, else Debian's newest, else ``None``."""
    on_path = shutil.which("initdb")
    debians = sorted(DEBIAN.glob("*/bin"), key=lambda folder: float(folder.parent.name), reverse=True)
    for folder in [Path(on_path).resolve().parent] * bool(on_path) + debians:
        if all((folder / name).is_file() for name in NEEDED):
            return folder
    return None


class PostgresServer:
    """Its databases take every local connection as the user ``tests``, without a password."""

    def __init__(self):
        self.programs = programs()
        self.port = free_port()
        self.folder = tempfile.mkdtemp(prefix="once-more-postgres-")
        self.process = None

    def start(self):
        #: neither program runs as root
        other = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        if other:
            shutil.chown(self.folder, other["user"], other["group"])
        data = f"{self.folder}/data"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": self.folder}
        create = ["initdb", "--pgdata", data, "--username", "tests", "--auth", "trust", "--encoding", "UTF8", "--locale", "C"]
        serve = ["postgres", "-D", data, "-p", str(self.port), "-c", "listen_addresses=127.0.0.1",
                 "-c", "unix_socket_directories=", "-c", "fsync=off"]  # fmt: skip
        subprocess.run([self.programs / create[0], *create[1:], "--no-sync"], check=True, **quiet, **other)
        self.process = subprocess.Popen([self.programs / serve[0], *serve[1:]], **quiet, **other)
        eventually(self.answers, within=30, what=f"postgres on port {self.port}")
        return self

    def answers(self):
        try:
            psycopg.connect(**self.where(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def where(self):
        return {"host": "127.0.0.1", "port": self.port, "user": "tests", "dbname": "postgres"}

    def stop(self):
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGQUIT)  # at once, with its children
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
