"""500 calls of few digests under ``until_and_while_executing``, while two of four workers are killed in the middle."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import held
from support.waiting import eventually

pytest_plugins = ["support.floor"]

KEYS = ["a", "b", "c", "d", "e"]
CALLS, WAVE = 500, 25
#: a killed worker's messages come again after seconds; kombu's own sweep of them is not slowed down either
SOON_AGAIN = {"visibility_timeout": 4, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
CONF = {"once_more_lease": 3, "broker_transport_options": SOON_AGAIN}


@pytest.fixture
def shop_locks(floor):
    import shop_locks

    return shop_locks


class Crowd:
    """The publishers, and what they were told."""

    def __init__(self, floor, task):
        self.floor, self.task = floor, task
        self.told = []

    def publish(self, first, last, **options):
        """These calls, from four threads at once; gives the ids of those that were admitted."""

        def one(n):
            return self.task.apply_async((KEYS[n % len(KEYS)], n), **options)

        with ThreadPoolExecutor(4) as pool:
            told = list(pool.map(one, range(first, last)))
        self.told += told
        return [result.id for result in told if not result.duplicate]

    def phases(self, key):
        """Of the holders of this key, by its record; the second argument of the task does not count."""
        return Counter(holder.phase for holder in held.holders(self.task, key, 0))

    def nobody_waits(self):
        found = {key: self.phases(key) for key in KEYS}
        assert all(phases["W"] <= 1 and phases["R"] <= 1 for phases in found.values()), found
        return not any(phases["W"] for phases in found.values())

    @property
    def admitted(self):
        return {result.id: result for result in self.told if not result.duplicate}


@pytest.mark.conf(**CONF)
def test_of_500_calls_none_runs_beside_another_and_every_admitted_one_ends_though_two_workers_are_killed(
    floor, start, shop_locks
):
    workers = [start("-c", "2", ready=False, app="shop_locks", SHOP_SIGNALS="tell") for _ in range(4)]
    for worker in workers:
        worker.ready()
    crowd = Crowd(floor, shop_locks.crowded)
    floor.gates.open("crowd")
    half = CALLS // 2
    for first in range(0, half, WAVE):
        crowd.publish(first, first + WAVE)
        eventually(crowd.nobody_waits, within=60)

    # hold all of them back, one running and one waiting for each key, and kill two workers that run something
    floor.settled()
    floor.witness.redis.srem("gates", "crowd")
    crowd.publish(half, half + len(KEYS))
    eventually(lambda: len(open_runs(floor)) == len(KEYS), what="a run of each key")
    # for longer than it takes to kill: a message on its way from Redis to a worker that is killed is lost to Celery itself
    waiting = crowd.publish(half + len(KEYS), half + WAVE, reschedule_countdown=2)
    assert len(waiting) == len(KEYS)
    eventually(lambda: set(waiting) == {m["headers"]["id"] for m in floor.broker.unacknowledged() if m["headers"]["eta"]})
    assert {key: crowd.phases(key) for key in KEYS} == {key: Counter("RW") for key in KEYS}
    busy = [worker for worker in workers if set(worker.children) & {e["pid"] for e in open_runs(floor).values()}]
    assert len(busy) >= 3  # five runs in pairs of slots
    killed = {e["task_id"] for worker in busy[:2] for e in open_runs(floor).values() if e["pid"] in worker.children}
    assert len(killed) >= 2
    for worker in busy[:2]:
        worker.kill_group()
    floor.broker.forget_sweep()
    floor.gates.open("crowd")

    for first in range(half + WAVE, CALLS, WAVE):
        crowd.publish(first, first + WAVE)
        eventually(crowd.nobody_waits, within=60)
    assert len(crowd.told) == CALLS
    assert {result.id for result in crowd.told} == crowd.admitted.keys()  # a duplicate is told of one that was let in
    for result in crowd.admitted.values():
        result.get(timeout=60)
    floor.settled()

    assert floor.told("task_rescheduled")
    starts = Counter(e["task_id"] for e in floor.witness.events("start"))
    ends = Counter(e["task_id"] for e in floor.witness.events("end"))
    assert floor.witness.overlaps() == []
    assert starts == {task_id: 2 if task_id in killed else 1 for task_id in crowd.admitted}
    assert ends == dict.fromkeys(crowd.admitted, 1)
    assert floor.free()


def open_runs(floor):
    """The last start of each key that has no end yet, by key."""
    runs = {}
    for e in floor.witness.events():
        if e["event"] == "start":
            runs[e["key"]] = e
        elif e["event"] == "end":
            runs.pop(e["key"])
    return runs
