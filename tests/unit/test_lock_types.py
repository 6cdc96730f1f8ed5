"""The locks, as data."""

import dataclasses

import pytest

from celery_once_more import ConfigurationError, register_lock
from celery_once_more.lock_types import LOCK_TYPES, LockType

#: what refuses a publish, what refuses a start, what refuses the start of a message that was not admitted
DOORS = {
    "until_executing": ("W", "", ""),
    "until_executed": ("WR", "R", "WR"),
    "until_expired": ("WRK", "R", "WRK"),
    "until_and_while_executing": ("W", "R", "R"),
    "while_executing": ("", "R", "R"),
}


def test_there_is_what_works_and_nothing_else():
    assert {name: (lock.refuse_publish, lock.refuse_start, lock.refuse_unadmitted) for name, lock in LOCK_TYPES.items()} == DOORS


def test_what_else_is_so_follows_from_that():
    def those(fits):
        return {name for name, lock in LOCK_TYPES.items() if fits(lock)}

    assert those(lambda lock: lock.kept) == {"until_expired"}
    assert those(lambda lock: not lock.at_publish) == those(lambda lock: lock.limited) == {"while_executing"}
    assert those(lambda lock: lock.at_start) == {"while_executing", "until_and_while_executing"}
    assert those(lambda lock: lock.server == "reschedule") == those(lambda lock: lock.at_start)


def test_a_lock_is_found_by_its_own_name():
    assert all(lock.name == name for name, lock in LOCK_TYPES.items())


@pytest.mark.parametrize("lock", LOCK_TYPES.values(), ids=str)
def test_phases_are_those_that_there_are(lock):
    assert set(lock.refuse_publish + lock.refuse_start) <= {"W", "R", "K"}


def test_a_message_without_a_ticket_stands_at_both_doors_where_the_first_asks_for_those_who_run():
    assert LOCK_TYPES["until_executed"].refuse_unadmitted == "WR"
    assert LockType(name="x", refuse_publish="W", refuse_start="R").refuse_unadmitted == "R"
    assert LockType(name="x", refuse_publish="R", refuse_start="").refuse_unadmitted == "R"
    assert LockType(name="x", refuse_publish="W", refuse_start="").refuse_unadmitted == ""
    assert LockType(name="x", refuse_publish="", refuse_start="R").refuse_unadmitted == "R"


def test_a_lock_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        LOCK_TYPES["until_executed"].limit = 2


# a lock of one's own


@pytest.fixture
def registered():
    before = dict(LOCK_TYPES)
    yield LOCK_TYPES
    LOCK_TYPES.clear()
    LOCK_TYPES.update(before)


def test_a_lock_of_ones_own_is_a_lock(registered):
    register_lock("not_while_executing", refuse_publish=["running"])
    assert registered["not_while_executing"] == LockType(name="not_while_executing", refuse_publish="R", refuse_start="R")


def test_a_lock_of_ones_own_whose_start_may_find_another_run_reschedules_there(registered):
    register_lock("mine", refuse_publish=("waiting",))
    assert registered["mine"].server == "reschedule"


def test_a_lock_can_be_registered_again_as_it_is_and_not_as_another(registered):
    for _ in range(2):
        register_lock("mine", refuse_publish=("waiting", "running"))
    with pytest.raises(ConfigurationError, match="register_lock: there is a lock 'mine' already"):
        register_lock("mine", refuse_publish=("waiting",))
    with pytest.raises(ConfigurationError, match="there is a lock 'until_executed' already"):
        register_lock("until_executed", refuse_publish=("waiting",))


@pytest.mark.parametrize(
    ("name", "how", "sentence"),
    [
        ("Mine Own", {}, "register_lock: a lock's name is a word like 'until_started', not 'Mine Own'"),
        (5, {}, "register_lock: a lock's name is a word like 'until_started', not 5"),
        ("mine", {"refuse_publish": ["wait"]}, "register_lock: refuse_publish knows 'waiting', 'running', not 'wait'"),
        ("mine", {"refuse_publish": "R"}, "register_lock: refuse_publish knows 'waiting', 'running', not 'R'"),
        ("mine", {"refuse_start": ["waiting"]}, "register_lock: refuse_start knows 'running', not 'waiting'"),
        ("mine", {"refuse_start": ()}, "register_lock: 'mine' would refuse nothing; give it refuse_publish or refuse_start"),
    ],
)
def test_a_lock_that_makes_no_sense_is_refused(registered, name, how, sentence):
    with pytest.raises(ConfigurationError) as caught:
        register_lock(name, **how)
    assert str(caught.value) == sentence
