"""pytest fixtures round ``shop_gated``: the shop floor as a test sees it, and a worker that lives as long as a test module.

``pytest_plugins = ["support.floor"]`` in a test module. Either all of its tests use ``living``, and ``CONF`` and ``WORKER`` say
with which settings, options and environment (the tests need ``pytest.mark.conf(**CONF)`` too), and ``APP`` of which app; or
none does.
"""

import json

import pytest

from support import lock_db
from support.broker import Broker
from support.kills import Kills
from support.stored import Stored
from support.waiting import eventually
from support.worker_process import WorkerProcess

#: keyword arguments of the package's signals, besides the task id and the digest
SAYS = {
    "lock_acquired": {"phase", "token"},
    "lock_released": {"reason"},
    "lock_conflict": {"holder", "phase", "side", "decision"},
    "lock_lost": {"reason"},
    "lock_reaped": {"phase"},
    "task_redelivered": {"decision"},
    "task_rescheduled": {"side", "countdown", "tries"},
    "store_unavailable": {"act", "error"},
}


class Floor:
    """Everything that can be seen from outside: broker, lock store, results, witness; and the gates."""

    def __init__(self, shop, redis_server):
        self.shop = shop
        self.witness = shop.witness
        self.gates = shop.gates
        self.kills = Kills(shop.witness)
        self.broker = Broker(redis_server.client(0))
        self.stored = Stored(redis_server.client(1))
        self._locks = redis_server.client(2)

    def held(self):
        return lock_db.held(self._locks)

    def free(self):
        return not self.held()

    def flush_locks(self):
        self._locks.flushdb()

    def runs(self, key, **what):
        return [e for e in self.witness.events("start", key) if all(e[name] == value for name, value in what.items())]

    def ended(self, key):
        return self.witness.count("end", key)

    def running(self, key, n=1):
        """Wait until run ``n`` of a key has begun."""
        eventually(lambda: len(self.runs(key)) >= n, within=60, what=f"run {n} of {key}")

    def told(self, name, **what):
        """The package's own signals of one name, as a worker with ``SHOP_SIGNALS`` told them; each as it is documented."""
        signals = [e for e in self.witness.events("signal") if e["name"] == name]
        for signal in signals:
            assert signal["what"].keys() == {"task_id", "digest", *SAYS[name]}, signal
        return [e for e in signals if all(e["what"].get(k) == v for k, v in what.items())]

    def settled(self):
        """Wait until the broker is empty for good."""
        eventually(self.broker.quiet, within=60, what="a quiet broker")


@pytest.fixture
def floor(shop, clean_redis):
    import shop_gated

    floor = Floor(shop_gated, clean_redis)
    yield floor
    floor.stored.close()


@pytest.fixture
def start(start_worker):
    """``start("-c", "2", SHOP_MUTANT="…")`` -> the process of a worker of ``shop_gated``, ready."""

    def start(*options, ready=True, app="shop_gated", **env):
        return start_worker(*options, ready=ready, app=app, env=env).container

    return start


@pytest.fixture(scope="module")
def _life(request, shop_env, redis_server):
    options, env = request.module.WORKER
    env = {"SHOP_CONF": json.dumps(request.module.CONF), **env}
    app = getattr(request.module, "APP", "shop_gated")
    process = WorkerProcess(*options, app=app, name=request.module.__name__.rpartition(".")[2], env=env)
    process.ready()
    yield process
    process.teardown()


@pytest.fixture
def living(_life, floor):
    """The worker of this module; idle again when the test ends."""
    yield _life
    floor.gates.open_all()
    floor.settled()
