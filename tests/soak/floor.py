"""The servers and the three workers of a soak."""

import importlib
import os
import shutil
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

from support.broker import Broker
from support.redis_server import RedisServer
from support.worker_process import WorkerProcess

from soak.ledger import Ledger

TESTS = Path(__file__).parent.parent
POOLS = {"prefork": ("-c", "3"), "threads": ("-c", "6"), "gevent": ("-c", "8")}


class Floor:
    def __init__(self, mutant=""):
        self.folder = Path(tempfile.mkdtemp(prefix="once-more-soak-"))
        self._ends = ExitStack()
        with self._ends as ends:
            self._start(ends, mutant)
            self._ends = ends.pop_all()  # it stands, and ends by ``close``

    def _start(self, ends, mutant):
        self.broker_server, self.lock_server, self.witness_server = (self._server(ends) for _ in range(3))
        self.env = {
            "SOAK_BROKER": f"redis://127.0.0.1:{self.broker_server.port}",
            "SOAK_LOCKS": self.lock_server.url(0),
            "SOAK_WITNESS": self.witness_server.url(0),
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        }
        with mock.patch.dict(os.environ, self.env):
            sys.modules.pop("soak.tasks", None)
            tasks = importlib.import_module("soak.tasks")
        self.tasks, self.app, self.witness = tasks.TASKS, tasks.app, tasks.witness
        self.broker, self.locks = Broker(self.broker_server.client(2)), self.lock_server.client(0)
        self.ledger = Ledger(self.broker_server.port, self.folder / "broker.monitor")
        ends.callback(self.ledger.close)
        self.workers = {pool: self._worker(ends, pool, slots, mutant) for pool, slots in POOLS.items()}
        self.busy = {pool: threading.Lock() for pool in POOLS}
        for worker in self.workers.values():
            worker.ready()

    def _server(self, ends):
        server = RedisServer()
        ends.callback(server.stop)
        return server.start()

    def _worker(self, ends, pool, slots, mutant):
        env = {**self.env, "SOAK_WORKER": pool, "SOAK_MUTANT": mutant}
        worker = WorkerProcess("-P", pool, *slots, app="soak.tasks", name=pool, env=env)
        ends.callback(worker.teardown)
        ends.callback(lambda: shutil.copy(worker.log_path, self.folder / f"{pool}.log"))
        return worker

    def close(self, keep=False):
        """``keep``: the logs stay, in ``folder``."""
        self._ends.close()
        if not keep:
            shutil.rmtree(self.folder)

    def all_up(self):
        """After the last fault: which workers had ended by themselves, each in a sentence."""
        ended = []
        for name, worker in self.workers.items():
            with self.busy[name]:
                if worker.status == "exited":
                    ended.append(f"worker {name} ended by itself, with {worker.process.returncode}")
                    worker.start()
                worker.ready()
        return ended

    def said_wrong(self):
        """Lines of the workers' logs: Celery, and the package's keeper, say so where something raised, and go on."""
        return [f"{name}: {line}" for name, worker in self.workers.items() for line in worker.logs().splitlines()
                if "Signal handler" in line or line.endswith("the next beat tries again")]  # fmt: skip

    def connections(self):
        """Addresses of those that the broker has."""
        return {client["addr"] for client in self.broker_server.client(0).client_list()}
