"""Retries, copies of their messages, and children that die between the steps of a run's end, in one worker."""

import pytest
from celery import VERSION
from support import scenarios

pytest_plugins = ["support.floor"]

#: a lease shorter than the retries wait
CONF = {"once_more_lease": 2}
#: every receiver of the package's signals raises, which breaks nothing
WORKER = ("-c", "4"), {"SHOP_KILLS": "1", "SHOP_SIGNALS": "raise"}
pytestmark = pytest.mark.conf(**CONF)


def test_a_retry_keeps_its_lock_while_it_waits(floor, living):
    assert scenarios.retry_that_waits(floor) == []


def test_a_retry_that_starts_before_the_last_runs_postrun_is_not_disturbed_by_it(floor, living):
    assert scenarios.retry_before_the_last_runs_end(floor) == []


def test_a_copy_of_a_message_that_a_retry_has_replaced_does_not_run(floor, living):
    assert scenarios.copy_of_a_message_that_a_retry_replaced(floor) == []


def test_a_child_killed_between_any_two_steps_of_the_end_loses_nothing_and_runs_nothing_beside_itself(floor, living):
    assert scenarios.child_dies_between_the_steps_of_its_end(floor) == []
    assert len(floor.runs("sent")) == 2
    assert len(floor.runs("stored")) == (1 if VERSION >= (5, 7) else 2)  # 5.6 does not look whether SUCCESS was stored
