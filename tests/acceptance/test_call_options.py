"""What a publish may ask for: to be rescheduled, to wait for the lock, or options of its own, which travel to its run."""

import threading

import pytest
from celery.exceptions import TaskRevokedError
from support import held
from support.commands import commands_of
from support.waiting import eventually

from celery_once_more import DuplicateDropped, LockConflict

pytest_plugins = ["support.floor"]

WORKER = ("-c", "4"), {"SHOP_SIGNALS": "tell"}
APP, CONF = "shop_locks", {}


@pytest.fixture
def task(floor, living):
    import shop_locks

    return shop_locks.by_lock["until_executed"]


@pytest.fixture
def first(floor, task):
    """A call that runs until gate ``a:1`` is opened."""
    first = task.delay("a")
    floor.running("a")
    return first


def test_a_rescheduled_publish_has_a_result_of_its_own_and_runs_after_the_first(floor, task, first):
    options = {"on_conflict": "reschedule", "reschedule_countdown": 0.2}
    second, third = (task.apply_async(("a",), **options) for _ in range(2))
    assert len({first.id, second.id, third.id}) == 3
    assert (second.duplicate, third.duplicate) == (False, False)
    for result in (second, third):
        eventually(lambda: len(floor.told("task_rescheduled", task_id=result.id, side="server")) >= 2)  # noqa: B023
    assert [e["task_id"] for e in floor.runs("a")] == [first.id]
    floor.gates.open_all()
    assert [result.get(timeout=30) for result in (first, second, third)] == ["a"] * 3
    floor.settled()
    assert sorted(e["task_id"] for e in floor.runs("a")) == sorted([first.id, second.id, third.id])
    assert floor.runs("a")[0]["task_id"] == first.id
    assert floor.witness.overlaps() == []
    assert floor.free()


def test_rescheduled_on_the_publishing_side_only_it_has_one_more_chance(floor, task, first):
    options = {"on_conflict": {"client": "reschedule", "server": "log"}, "reschedule_countdown": 0.2}
    second = task.apply_async(("a",), **options)
    assert not second.duplicate
    with pytest.raises(DuplicateDropped):
        second.get(timeout=30)
    floor.gates.open_all()
    assert first.get(timeout=30) == "a"
    again = task.apply_async(("a",), **options)
    assert again.get(timeout=30) == "a"


def test_a_publisher_that_waits_is_admitted_when_the_lock_is_freed_meanwhile(floor, task, first, redis_server):
    answers = []
    publisher = threading.Thread(target=lambda: answers.append(task.apply_async(("a",), lock_timeout=60)))
    asked_before = questions(redis_server)
    publisher.start()
    eventually(lambda: questions(redis_server) >= asked_before + 3, what="a publisher that asks again and again")
    assert answers == []
    floor.gates.open_all()
    assert first.get(timeout=30) == "a"
    publisher.join(timeout=60)
    (second,) = answers
    assert not second.duplicate
    assert second.get(timeout=30) == "a"
    assert [e["task_id"] for e in floor.runs("a")] == [first.id, second.id]
    assert floor.witness.overlaps() == []


def test_a_publisher_that_waited_in_vain_is_a_duplicate(floor, task, first, redis_server):
    with commands_of(redis_server, db=2) as sent:
        second = task.apply_async(("a",), lock_timeout=0.3)
    assert (second.duplicate, second.id) == (True, first.id)
    assert sent.count("EVALSHA") >= 3
    with pytest.raises(LockConflict):
        task.apply_async(("a",), lock_timeout=0.1, on_conflict="raise")


def questions(redis_server):
    return redis_server.client(2).info("commandstats")["cmdstat_evalsha"]["calls"]


def test_the_lock_and_the_strategy_of_one_call_travel_to_its_run(floor, task, first):
    """Another lock is another door: this call was let in, and met the first one's run at its start."""
    options = {"lock": "while_executing", "on_conflict": {"server": "raise"}}
    second = task.apply_async(("a",), **options)
    assert not second.duplicate
    with pytest.raises(LockConflict) as conflict:
        second.get(timeout=30)
    assert conflict.value.holder == first.id
    with pytest.raises(TaskRevokedError):
        task.apply_async(("a",), lock="while_executing", on_conflict={"server": "log"}).get(timeout=30)
    floor.gates.open_all()
    assert first.get(timeout=30) == "a"
    assert task.apply_async(("a",), **options).get(timeout=30) == "a"


def test_a_lease_of_one_call_that_is_far_shorter_than_the_setting_is_renewed(floor, task):
    """The run keeps its lock over several of its leases, and no publish comes in between."""
    result = task.apply_async(("a",), lock_lease=1)
    floor.running("a")
    deadlines = set()

    def renewed():
        holder = held.holder(task, "a")
        assert (holder.task_id, holder.phase) == (result.id, "R")
        assert holder.remaining < 2, "the setting's lease is a minute"
        assert task.delay("a").id == result.id
        deadlines.add(holder.until)
        return max(deadlines) - min(deadlines) > 4000

    eventually(renewed, what="four leases")
    floor.gates.open_all()
    assert result.get(timeout=30) == "a"
    assert [e["lost"] for e in floor.witness.events("gone through", "a")] == [None]
    assert len(floor.runs("a")) == 1
    floor.settled()
    assert floor.free()
