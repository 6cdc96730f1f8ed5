"""The rows L17 and L18 of the design: the lock store loses everything, or goes away, while messages wait and tasks run."""

# ruff: noqa: N802  (a test bears the number of its row)

import pytest
from support import held, results
from support.redis_server import RedisServer
from support.waiting import eventually


@pytest.fixture(autouse=True, scope="module")
def results_are_forgotten(redis_server):
    yield
    results.forget()


@pytest.fixture
def flush(redis_server):
    """Empty the lock store, and only it."""
    return redis_server.client(2).flushdb


@pytest.mark.conf(once_more_lease=2)
@pytest.mark.parametrize("name", ["gated", "gated_late"])
def test_L17_a_message_whose_lock_was_flushed_while_it_waited_still_runs_and_never_beside_another(
    shop, start_worker, witness, flush, name
):
    """The flush lets a second call in. Both were admitted, so both run, one after the other."""
    task = getattr(shop, name)
    first = task.delay("a")
    flush()
    second = task.delay("a")
    assert not second.duplicate
    worker = start_worker("-c", "2")
    eventually(lambda: [line for line in worker.logs().splitlines() if "put off" in line])
    shop.open_gate("a", 1)
    shop.open_gate("a", 2)
    assert {first.get(timeout=60), second.get(timeout=60)} == {1, 2}
    eventually(lambda: held.free(task, "a"))
    assert witness.count("start", "a") == witness.count("kept", "a") == 2
    assert not witness.overlaps()


@pytest.mark.conf(once_more_lease=2)
@pytest.mark.workers(1, "-c", "2")
@pytest.mark.parametrize("name", ["gated", "gated_late"])
def test_L17_a_running_lock_that_was_flushed_is_taken_again_under_a_new_token_and_its_run_is_told(
    shop, worker, witness, flush, name
):
    task = getattr(shop, name)
    first = task.delay("a")
    before = eventually(lambda: (now := held.holder(task, "a")) and now.phase == "R" and now)
    eventually(lambda: held.holder(task, "a").until > before.until)  # the keeper has seen the run
    flush()
    after = eventually(lambda: held.holder(task, "a"))
    assert (after.task_id, after.run) == (before.task_id, before.run)
    assert after.token > before.token
    twin = task.delay("a")
    assert (twin.duplicate, twin.id) == (True, first.id)
    shop.open_gate("a", 1)
    eventually(lambda: witness.count("lost", "a"))
    eventually(lambda: held.free(task, "a"))
    assert witness.count("start", "a") == 1


@pytest.fixture
def lock_server():
    """A Redis for the locks alone, which remembers them when it is killed and started again."""
    server = RedisServer("--appendonly", "yes", "--appendfsync", "always").start()
    yield server
    server.stop()


class TestLockStoreDown:
    LEASE = 5

    @pytest.fixture
    def conf(self, lock_server):
        return {"once_more_redis_url": lock_server.url(0), "once_more_lease": self.LEASE}

    @pytest.mark.workers(1, "-c", "2")
    def test_L18_when_the_store_is_down_at_the_end_of_a_run_its_outcome_stands_and_its_lock_lapses(
        self, shop, worker, witness, lock_server
    ):
        tasks = {"early": shop.ends_by, "late": shop.ends_late_by}
        bystander = held.take(shop.early, "bystander")
        calls = {key: task.delay(key, "success when told") for key, task in tasks.items()}
        for key in tasks:
            eventually(lambda key=key: witness.count("start", key))
        lock_server.kill()
        for key, call in calls.items():
            shop.open_gate(key, 1)
            assert call.get(timeout=60) == key
            eventually(lambda call=call: [line for line in worker.logs().splitlines()
                                              if call.id in line and "its lock lapses with its lease" in line])  # fmt: skip
        lock_server.start()
        assert held.record(shop.early, "bystander") == bystander
        for key, task in tasks.items():
            eventually(lambda task=task, key=key: held.free(task, key))
            again = task.delay(key)
            assert not again.duplicate
            assert again.get(timeout=30) == key
            assert witness.count("start", key) == 2
        assert held.record(shop.early, "bystander") == bystander
        assert not witness.overlaps()
