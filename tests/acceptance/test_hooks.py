"""Each of the three signals that the package stands on carries a property of its own, which is gone without it."""

import pytest
from celery import signals
from support import scenarios

pytest_plugins = ["support.floor"]

#: seconds after which a message that cannot start is tried again
tried_again_soon = pytest.mark.conf(once_more_lease=1)

SCENARIOS = (
    scenarios.plain_run,
    scenarios.end_of_a_run,
    scenarios.admitted_message_meets_another_run,
    scenarios.publish_by_name,
)


@pytest.fixture
def no_before_task_publish(floor):
    """In this process, the publisher."""
    signal = signals.before_task_publish
    connected = list(signal.receivers)
    assert signal.disconnect(dispatch_uid="celery_once_more.before_task_publish")
    yield
    signal.receivers[:] = connected


@tried_again_soon
def test_with_all_three_signals_every_property_holds(floor, start):
    worker = start("-c", "2")
    for scenario in SCENARIOS:
        assert scenario(floor, worker) == [], scenario.__name__


@tried_again_soon
def test_without_before_task_publish_an_admitted_message_is_dropped_and_a_name_takes_no_lock(
    floor, start, no_before_task_publish
):
    worker = start("-c", "2")
    assert scenarios.admitted_message_meets_another_run(floor, worker) == [scenarios.DROPPED]
    assert scenarios.publish_by_name(floor, worker)[0] == scenarios.ADMITTED_BY_NAME


@tried_again_soon
def test_without_task_prerun_no_call_runs(floor, start):
    worker = start("-c", "2", SHOP_WITHOUT="task_prerun")
    assert scenarios.plain_run(floor, worker) == [scenarios.NEVER_RAN]
    assert floor.witness.events("disconnected")[0]["gone"]


def test_without_task_postrun_a_lock_stays_after_the_end(floor, start):
    worker = start("-c", "2", SHOP_WITHOUT="task_postrun")
    assert scenarios.end_of_a_run(floor, worker) == [scenarios.NOT_FREED]
    assert floor.witness.events("disconnected")[0]["gone"]
