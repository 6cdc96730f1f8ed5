"""A MariaDB of the tests' own: a process on a free loopback port, with its data in a temporary folder."""

import os
import shutil
import signal
import subprocess
import tempfile

import pymysql

from support.redis_server import free_port
from support.waiting import eventually

#: where Debian keeps the server, which is on no user's PATH
FOLDERS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
NAME = "reservations"


def programs():
    """``mariadb-install-db`` and ``mariadbd``, or ``None``."""
    found = [shutil.which(name, path=FOLDERS) for name in ("mariadb-install-db", "mariadbd")]
    return found if all(found) else None


class MariaDbServer:
    """Its root, without a password, may do everything from this machine."""

    def __init__(self):
        self.port = free_port()
        self.folder = tempfile.mkdtemp(prefix="once-more-mariadb-")
        self.process = None

    def start(self):
        install, serve = programs()
        how = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": self.folder}
        own = []
        if os.geteuid() == 0:  # as which it does not run
            shutil.chown(self.folder, "mysql", "mysql")
            own = ["--user=mysql"]
        data = f"--datadir={self.folder}/data"
        create = [install, "--no-defaults", *own, data, "--auth-root-authentication-method=normal", "--skip-test-db"]
        made = subprocess.run(create, **how | {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}, text=True)
        if made.returncode:
            raise RuntimeError(f"{install} ended with {made.returncode}:\n{made.stdout[-2000:]}")
        run = [serve, "--no-defaults", *own, data, f"--socket={self.folder}/socket", f"--port={self.port}",
               "--bind-address=127.0.0.1", "--max-connections=300", "--innodb-flush-log-at-trx-commit=0",
               "--innodb-buffer-pool-size=32M", "--innodb-lock-wait-timeout=3"]  # fmt: skip
        self.process = subprocess.Popen(run, **how)
        eventually(self.answers, within=60, what=f"mariadbd on port {self.port}")
        return self

    def answers(self):
        try:
            connection = pymysql.connect(host="127.0.0.1", port=self.port, user="root", connect_timeout=5)
        except pymysql.OperationalError:
            return False
        with connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {NAME}")
        return True

    def url(self, port=None):
        return f"mysql+pymysql://root@127.0.0.1:{port or self.port}/{NAME}"

    def stop(self):
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
