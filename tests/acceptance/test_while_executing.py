"""``while_executing``, and what a message that finds its lock taken becomes at its start: rescheduled, dropped, failed."""

import pytest
from celery import chord
from celery.exceptions import TaskRevokedError
from support import held
from support.broker import body
from support.waiting import eventually

from celery_once_more import DuplicateDropped, LockConflict, StoreUnavailable

pytest_plugins = ["support.floor"]

WORKER = ("-c", "8"), {"SHOP_SIGNALS": "tell", "SHOP_REFUSE": "1"}
APP, CONF = "shop_locks", {}
AT_START = ["while_executing", "until_and_while_executing"]
at_start = pytest.mark.parametrize("lock", AT_START)
#: differs between two messages of one call
OWN = {"eta", "origin", "once_more_tries", "redelivered"}


@pytest.fixture
def shop_locks(floor):
    import shop_locks

    return shop_locks


@pytest.fixture
def occupied(floor, living, shop_locks):
    """``occupied(task)`` -> the call that runs under its lock, until gate ``a:1`` is opened."""

    def occupied(task):
        first = task.delay("a")
        floor.running("a")
        return first

    return occupied


@pytest.fixture
def sent_away(floor):
    """``sent_away(result, 3)`` -> the message of a call that was rescheduled so often at least."""

    def sent_away(result, times=2):
        def message():
            found = floor.broker.find(result.id)
            return found if found and found["headers"].get("once_more_tries", 0) >= times else None

        return eventually(message, what=f"message {times} of {result.id}")

    return sent_away


def test_no_more_run_at_once_than_the_limit_says_and_no_slot_stays_idle_for_long(floor, living, shop_locks):
    """60 calls for 3 places and 8 slots. The one ratio of times that is asserted: all of it takes at most twice the ideal."""
    results = [shop_locks.limited.delay("a", n) for n in range(60)]
    assert sorted(result.get(timeout=90) for result in results) == list(range(60))
    events = [e for e in floor.witness.events() if e["event"] in ("start", "end")]
    inside, most, since, busy_s = 0, 0, {}, 0.0
    for e in events:
        if e["event"] == "start":
            inside, since[e["n"]] = inside + 1, e["at"]
        else:
            inside, busy_s = inside - 1, busy_s + e["at"] - since.pop(e["n"])
        most = max(most, inside)
    assert most == 3
    assert len(floor.runs("a")) == floor.ended("a") == 60
    took_s, ideal_s = events[-1]["at"] - events[0]["at"], busy_s / 3
    assert took_s <= 2 * ideal_s, (took_s, ideal_s)


def and_leaves_nothing(floor, task, first, refused, error):
    """Only the first call holds anything; a third one is let in at its publish and refused like the second; then all is free."""
    eventually(lambda: not floor.broker.find(refused.id), what="the acknowledgement")
    assert [(holder.task_id, holder.phase) for holder in held.holders(task, "a")] == [(first.id, "R")]
    third = task.delay("a")
    assert not third.duplicate
    with pytest.raises(error):
        third.get(timeout=30)
    floor.gates.open("a:1")
    assert first.get(timeout=30) == "a"
    floor.settled()
    assert len(floor.runs("a")) == 1
    assert floor.free()


@at_start
def test_with_log_a_second_run_is_dropped_and_its_result_says_of_whom_it_is_a_duplicate(floor, occupied, shop_locks, lock):
    """Nobody who waits for it hangs, and what it waited with at the lock is free again."""
    task = shop_locks.logs[lock]
    first = occupied(task)
    second = task.delay("a")
    with pytest.raises(DuplicateDropped) as dropped:
        second.get(timeout=30)
    assert isinstance(dropped.value, TaskRevokedError)
    assert (dropped.value.holder, dropped.value.digest) == (first.id, held.digest(task, "a"))
    assert (second.state, second.duplicate) == ("REVOKED", False)
    and_leaves_nothing(floor, task, first, second, DuplicateDropped)


@at_start
def test_with_raise_a_second_run_fails_and_what_it_waited_with_is_free_again(floor, occupied, shop_locks, lock):
    task = shop_locks.raises[lock]
    first = occupied(task)
    second = task.delay("a")
    with pytest.raises(LockConflict) as conflict:
        second.get(timeout=30)
    assert (conflict.value.holder, conflict.value.digest, second.state) == (first.id, held.digest(task, "a"), "FAILURE")
    and_leaves_nothing(floor, task, first, second, LockConflict)


@at_start
def test_with_raise_an_autoretried_task_retries_until_the_lock_is_free(floor, occupied, shop_locks, lock):
    task = shop_locks.insists[lock]
    first = occupied(task)
    second = task.delay("a")
    eventually(lambda: floor.broker.find(second.id, retries=2), what="its second retry")
    if lock == "until_and_while_executing":  # it waits, retries included
        assert task.delay("a").id == second.id
    floor.gates.open_all()
    assert (first.get(timeout=30), second.get(timeout=30)) == ("a", "a")
    floor.settled()
    assert [e["task_id"] for e in floor.runs("a")] == [first.id, second.id]
    assert floor.runs("a")[1]["retries"] >= 2
    assert floor.witness.overlaps() == []
    assert floor.free()


@at_start
def test_a_rescheduled_message_is_the_same_but_for_its_eta_and_spends_no_retries(floor, occupied, sent_away, shop_locks, lock):
    task = shop_locks.by_lock[lock]
    occupied(task)
    other = shop_locks.limited
    options = {"expires": 6000, "time_limit": 60, "soft_time_limit": 50, "shadow": "shown", "priority": 3,
               "headers": {"trace": "abc"}, "root_id": "root", "parent_id": "parent"}  # fmt: skip
    links = {"link": other.si("linked", 1), "link_error": other.si("error", 0)}
    second = task.apply_async(("a", "retry at once"), **options, **links)
    before, after = sent_away(second, 1), sent_away(second, 3)
    plain = body(before)
    assert body(after)[:2] == plain[:2] == [["a", "retry at once"], {}]
    assert {**body(after)[2], "chain": None} == {**plain[2], "chain": None}
    assert plain[2]["callbacks"][0]["args"] == ["linked", 1]
    for name in (before["headers"].keys() | after["headers"].keys()) - OWN:
        assert (name, after["headers"].get(name)) == (name, before["headers"].get(name))
    said = {"id": second.id, "retries": 0, "trace": "abc", "shadow": "shown", "timelimit": [60, 50], "root_id": "root",
            "parent_id": "parent"}  # fmt: skip
    assert {name: after["headers"][name] for name in said} == said
    assert after["properties"]["priority"] == 3
    floor.gates.open_all()
    assert second.get(timeout=30) == "a"
    eventually(lambda: floor.ended("linked") == 1, what="the callback")
    floor.settled()
    assert floor.ended("linked") == 1
    assert {e["retries"] for e in floor.runs("a")} == {0}


def test_a_task_that_may_never_retry_is_rescheduled_all_the_same(floor, occupied, sent_away, shop_locks):
    """``max_retries=0``; the same message once more, and its own retries are left to it."""
    occupied(shop_locks.retries_never)
    never = shop_locks.retries_never.delay("a")
    sent_away(never, 3)
    floor.gates.open_all()
    assert never.get(timeout=30) == "a"


@at_start
def test_a_chord_waits_for_its_rescheduled_member(floor, occupied, sent_away, shop_locks, lock):
    task = shop_locks.by_lock[lock]
    first = occupied(task)
    floor.gates.open("b:1")
    result = chord([task.s("a"), task.s("b")])(shop_locks.collect.s())
    sent_away(result.parent[0], 2)
    floor.gates.open_all()
    assert result.get(timeout=30) == ["a", "b"]
    assert [e["task_id"] for e in floor.runs("a")] == [first.id, result.parent[0].id]


@pytest.mark.parametrize("name", ["while_executing", "until_and_while_executing", "reschedules_late"])
def test_a_rescheduled_call_ends_when_it_expires_and_not_later(floor, occupied, shop_locks, name):
    """Also one that would ask again in ten minutes only."""
    task = shop_locks.reschedules_late if name == "reschedules_late" else shop_locks.by_lock[name]
    first = occupied(task)
    second = task.apply_async(("a",), expires=2)
    with pytest.raises(TaskRevokedError, match="expired"):
        second.get(timeout=30)
    assert floor.told("task_rescheduled", task_id=second.id)
    eventually(lambda: [holder.task_id for holder in held.holders(task, "a")] == [first.id], what="no holder but the first")
    floor.gates.open("a:1")
    assert first.get(timeout=30) == "a"
    floor.settled()
    assert len(floor.runs("a")) == 1


def test_each_time_it_is_rescheduled_one_message_takes_the_place_of_the_one_before_it(floor, occupied, shop_locks):
    """While the worker turns the one over, the other may be there already: published first, acknowledged then."""
    occupied(shop_locks.by_lock["while_executing"])
    second = shop_locks.by_lock["while_executing"].delay("a")
    alone = set()

    def look():
        messages = floor.broker.waiting() + floor.broker.unacknowledged()
        tries = [m["headers"].get("once_more_tries", 0) for m in messages if m["headers"]["id"] == second.id]
        assert len(tries) < 2 or max(tries) - min(tries) <= 1, tries  # read in two steps: one may be seen twice on its way
        if len(tries) == 1:
            alone.add(tries[0])
        return len(alone) >= 5

    eventually(look, what="five messages, each of them alone")
    told = floor.told("task_rescheduled", task_id=second.id)
    assert [e["what"]["tries"] for e in told] == list(range(1, len(told) + 1))


def test_the_waits_between_two_messages_grow(floor, occupied, sent_away, shop_locks):
    occupied(shop_locks.by_lock["while_executing"])
    second = shop_locks.by_lock["while_executing"].delay("a")
    sent_away(second, 8)
    waits = [float(e["what"]["countdown"]) for e in floor.told("task_rescheduled", task_id=second.id)]
    assert waits[0] <= 1.25 * shop_locks.SOON
    assert waits[7] >= 0.75 * shop_locks.SOON * 1.25**7 > waits[0]


@pytest.fixture
def cut_off(floor, occupied, sent_away):
    """``cut_off(task)`` -> a call that was rescheduled once, and cannot be published any more; the broker takes nothing."""

    def cut_off(task):
        occupied(task)
        second = task.apply_async(("a",), reschedule_countdown=1)
        sent_away(second, 1)
        floor.witness.redis.set("broker takes nothing", 1)
        return second

    yield cut_off
    floor.witness.redis.delete("broker takes nothing")


@at_start
def test_a_message_that_cannot_be_rescheduled_goes_back_to_the_queue(floor, living, cut_off, shop_locks, lock):
    """It comes again at once, until it may run: which it does while the broker still takes nothing."""
    second = cut_off(shop_locks.by_lock[lock])
    failed = f"[{second.id}]: lock {held.digest(shop_locks.by_lock[lock], 'a')}: could not be put off"
    eventually(lambda: living.logs().count(failed) >= 2, what="two publishes that failed")
    floor.gates.open_all()
    assert second.get(timeout=60) == "a"
    floor.settled()
    assert [e["task_id"] for e in floor.runs("a")].count(second.id) == 1
    assert floor.free()


def test_with_early_acknowledgement_a_message_that_cannot_be_rescheduled_fails(floor, cut_off, shop_locks):
    """It was acknowledged before anybody asked: nothing can give it back, so whoever waits for it is told."""
    second = cut_off(shop_locks.while_executing_early)
    with pytest.raises(StoreUnavailable, match="could neither have its lock nor be put off"):
        second.get(timeout=60)
    floor.gates.open_all()
    floor.settled()
    assert len(floor.runs("a")) == 1
    assert floor.free()
