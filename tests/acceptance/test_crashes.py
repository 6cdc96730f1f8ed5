"""Workers that die with copies of their messages about; and rules of the protocol whose loss a scenario shows."""

import pytest
from celery import chain
from support import scenarios
from support.kills import POINTS
from support.waiting import eventually

pytest_plugins = ["support.floor"]

#: a lease shorter than the retries wait
CONF = {"once_more_lease": 2}
pytestmark = pytest.mark.conf(**CONF)

#: kombu 5.7 and later have both options: unacknowledged messages come again as soon as the timeout says so
COMES_AGAIN = {"visibility_timeout": 3, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}


@pytest.mark.conf(broker_transport_options=COMES_AGAIN, **CONF)
def test_a_copy_that_came_while_the_run_lived_runs_when_that_worker_dies(floor, start):
    assert scenarios.crash_after_a_copy_was_answered(floor, start) == []
    assert len(floor.runs("b")) == 2


@pytest.mark.conf(broker_transport_options=COMES_AGAIN, **CONF)
def test_a_worker_killed_between_any_two_steps_of_the_end_loses_nothing_and_runs_nothing_beside_itself(floor, start):
    """Four calls, each at another step when the process group dies; a second worker gets what the broker still has."""
    doomed = start("-c", "4", SHOP_KILLS="1")
    last = {}
    for point in POINTS:
        floor.kills.arm(point, point, "group", together=len(POINTS))
        last[point] = chain(floor.shop.gated.si(point).set(task_id=point), floor.shop.step.si(f"after {point}")).delay()
    for point in POINTS:
        floor.running(point)
    floor.gates.open_all()
    eventually(lambda: doomed.status == "exited", within=60, what="the worker's death")
    floor.broker.forget_sweep()
    start("-c", "4")
    floor.settled()
    assert scenarios.after_deaths(floor, last) == []
    assert [len(floor.runs(point)) for point in POINTS] == [2, 2, 1, 1]


@pytest.mark.parametrize(
    ("mutant", "scenario", "fault"),
    [
        ("release_on_retry", scenarios.retry_that_waits, scenarios.ADMITTED_BETWEEN),
        ("no_requeue", scenarios.retry_that_waits, scenarios.ADMITTED_BETWEEN),
        ("no_confirm", scenarios.copy_of_a_message_that_a_retry_replaced, scenarios.RAN_TWICE),
        ("done_too_early", scenarios.child_dies_between_the_steps_of_its_end, scenarios.LOST),
    ],
    ids=["release_on_retry", "no_requeue", "no_confirm", "done_too_early"],
)
def test_without_one_rule_the_scenario_that_guards_it_goes_wrong(floor, start, mutant, scenario, fault):
    start("-c", "4", SHOP_MUTANT=mutant, SHOP_KILLS="1")
    assert fault in scenario(floor)
    assert floor.witness.count("mutant", mutant)


@pytest.mark.conf(broker_transport_options=COMES_AGAIN, **CONF)
def test_without_putting_busy_copies_off_a_crash_loses_the_call(floor, start):
    env = {"SHOP_MUTANT": "busy_ends_the_delivery"}
    assert scenarios.LOST in scenarios.crash_after_a_copy_was_answered(floor, start, **env)
    assert floor.witness.count("mutant", "busy_ends_the_delivery")
