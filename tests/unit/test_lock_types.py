"""The locks, as data."""

import dataclasses

import pytest

from celery_once_more.lock_types import LOCK_TYPES, LockType


def test_there_is_what_works_and_nothing_else():
    assert list(LOCK_TYPES) == ["until_executed"]


def test_a_lock_is_found_by_its_own_name():
    assert all(lock.name == name for name, lock in LOCK_TYPES.items())


def test_until_executed_refuses_a_publish_while_another_waits_or_runs_and_a_start_while_another_runs():
    lock = LOCK_TYPES["until_executed"]
    assert (lock.refuse_publish, lock.refuse_start, lock.limit) == ("WR", "R", 1)


@pytest.mark.parametrize("lock", LOCK_TYPES.values(), ids=str)
def test_phases_are_those_that_there_are(lock):
    assert set(lock.refuse_publish + lock.refuse_start) <= {"W", "R"}


def test_a_message_without_a_ticket_stands_at_both_doors_where_the_first_asks_for_those_who_run():
    assert LOCK_TYPES["until_executed"].refuse_unadmitted == "WR"
    assert LockType(name="x", refuse_publish="W", refuse_start="R").refuse_unadmitted == "R"
    assert LockType(name="x", refuse_publish="R", refuse_start="").refuse_unadmitted == "R"
    assert LockType(name="x", refuse_publish="W", refuse_start="").refuse_unadmitted == ""
    assert LockType(name="x", refuse_publish="", refuse_start="R").refuse_unadmitted == "R"


def test_a_lock_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        LOCK_TYPES["until_executed"].limit = 2
