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
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(DEBIAN.glob("*/bin"), key=lambda folder: float(folder.parent.name), reverse=True)
    for folder in folders:
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
        how = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": self.folder}
        if os.geteuid() == 0:  # as which neither program runs
            shutil.chown(self.folder, "postgres", "postgres")
            how |= {"user": "postgres", "group": "postgres", "extra_groups": []}
        data = f"{self.folder}/data"
        create = [self.programs / "initdb", "--pgdata", data, "--username", "tests", "--auth", "trust", "--encoding", "UTF8",
                  "--locale", "C", "--no-sync"]  # fmt: skip
        serve = [self.programs / "postgres", "-D", data, "-p", str(self.port), "-c", "listen_addresses=127.0.0.1",
                 "-c", "unix_socket_directories=", "-c", "fsync=off"]  # fmt: skip
        subprocess.run(create, check=True, **how)
        self.process = subprocess.Popen(serve, **how)
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
