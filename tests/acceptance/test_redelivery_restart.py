"""The broker, a Redis of its own here, dies and is started again while a worker runs and holds its messages.

The worker stands still meanwhile, so that it never meets a closed port: that ends a worker of Celery 5.7 which holds messages.
"""

import json

import pytest
from kombu import Connection
from support import held
from support.broker import Broker
from support.floor import Floor
from support.redis_server import RedisServer
from support.shop_life import shop_for_a_module
from support.waiting import eventually
from support.worker_process import WorkerProcess

COMES_AGAIN = {"visibility_timeout": 2, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
CONF = {"once_more_lease": 5, "broker_transport_options": COMES_AGAIN}
KEEPS = ("--appendonly", "yes", "--appendfsync", "always")
#: the task of the call in each situation; what is held has an ETA
TASKS = {"runs": "gated", "runs, acknowledged": "gated_early", "is held": "gated", "is held, early": "gated_early"}


@pytest.fixture(scope="module")
def shop(shop_env, redis_server):
    import shop_gated

    yield from shop_for_a_module(shop_gated, redis_server, **CONF)


class Restart:
    """A worker whose broker is killed and started again, and a call in each situation."""

    def __init__(self, shop, redis_server, *options):
        self.server = RedisServer(*options).start()
        self.floor = Floor(shop, redis_server)
        self.floor.broker = Broker(self.server.client(0))
        env = {"SHOP_CONF": json.dumps({**CONF, "broker_url": self.server.url(0)})}
        self.worker = WorkerProcess("-c", "8", app="shop_gated", name=f"restart{len(options)}", env=env)
        self.worker.ready()
        self.calls = {}

    def key(self, situation):
        return f"{situation}, {self.worker.name}"

    def task(self, situation):
        return getattr(self.floor.shop, TASKS[situation])

    def publish(self, situation, **options):
        with Connection(self.server.url(0)) as connection:
            return self.task(situation).apply_async((self.key(situation),), connection=connection, **options)

    def play(self):
        for situation in TASKS:
            self.calls[situation] = self.publish(situation, countdown=10 if "held" in situation else None)
        for situation in TASKS:
            if "runs" in situation:
                self.floor.running(self.key(situation))
            else:
                eventually(lambda call=self.calls[situation]: f"[{call.id}] received" in self.worker.logs())
        connected = self.worker.logs().count("Connected to redis")
        self.worker.signal_group("SIGSTOP")
        self.server.kill()
        self.server.start()
        self.worker.signal_group("SIGCONT")
        eventually(lambda: self.worker.logs().count("Connected to redis") > connected, what="the broker again")
        return self

    def let_run(self, situation):
        key = self.key(situation)
        self.floor.gates.open(f"{key}:1", f"{key}:2")

    def ran_once(self, situation):
        self.let_run(situation)
        key = self.key(situation)
        assert self.calls[situation].get(timeout=60) == key
        eventually(lambda: held.free(self.task(situation), key), what="a free lock")
        assert len(self.floor.runs(key)) == 1

    def close(self):
        self.floor.gates.open(*(f"{self.key(situation)}:{n}" for situation in TASKS for n in (1, 2)))
        self.worker.teardown()
        self.floor.stored.close()
        self.server.stop()


@pytest.fixture(scope="module")
def kept(shop, redis_server):
    restart = Restart(shop, redis_server, *KEEPS)
    yield restart.play()
    restart.close()


@pytest.fixture(scope="module")
def emptied(shop, redis_server):
    restart = Restart(shop, redis_server)
    yield restart.play()
    restart.close()


@pytest.mark.parametrize("situation", ["runs", "runs, acknowledged"])
@pytest.mark.parametrize("restart", ["kept", "emptied"])
def test_what_runs_goes_on_has_its_lock_and_runs_once(request, restart, situation):
    restart = request.getfixturevalue(restart)
    task, key = restart.task(situation), restart.key(situation)
    began = held.holder(task, key)
    eventually(lambda: held.holder(task, key).until > began.until, what="a renewal")
    assert restart.publish(situation).id == restart.calls[situation].id
    restart.ran_once(situation)


@pytest.mark.parametrize("situation", ["is held", "is held, early"])
def test_what_was_held_comes_again_from_a_broker_that_kept_it_and_runs_once(kept, situation):
    kept.ran_once(situation)


def test_a_broker_that_kept_its_data_ends_with_nothing_to_deliver(kept):
    for situation in TASKS:
        kept.let_run(situation)
    kept.floor.settled()
    for situation in TASKS:
        assert len(kept.floor.runs(kept.key(situation))) == 1
        assert held.free(kept.task(situation), kept.key(situation))


@pytest.mark.parametrize("situation", ["is held", "is held, early"])
def test_the_lock_of_a_message_that_the_broker_lost_can_be_seen_and_freed(emptied, situation):
    task, key = emptied.task(situation), emptied.key(situation)
    lost = task.lock_info(key)
    assert (lost.holder, lost.phase) == (emptied.calls[situation].id, "waiting")
    assert emptied.publish(situation).duplicate
    assert task.release_lock(lost)
    again = emptied.publish(situation)
    assert not again.duplicate
    emptied.let_run(situation)
    assert again.get(timeout=30) == key
    assert [run["task_id"] for run in emptied.floor.runs(key)] == [again.id]
