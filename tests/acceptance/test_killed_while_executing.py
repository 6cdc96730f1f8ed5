"""Workers killed in mid-run, with calls rescheduled behind them: nobody waits for ever for a lock that nobody holds."""

import pytest
from support import held
from support.waiting import eventually

pytest_plugins = ["support.floor"]

SOON_AGAIN = {"visibility_timeout": 4, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}


@pytest.mark.conf(once_more_lease=2, broker_transport_options=SOON_AGAIN)
@pytest.mark.parametrize("lock", ["while_executing", "until_and_while_executing"])
def test_calls_rescheduled_behind_a_killed_run_run_when_its_lease_has_lapsed(floor, start, lock):
    import shop_locks

    task = shop_locks.by_lock[lock]
    killed, other = start("-c", "1", app="shop_locks"), None
    first = task.delay("a")
    floor.running("a")
    other = start("-c", "2", app="shop_locks")
    behind = [result for result in (task.delay("a") for _ in range(3)) if not result.duplicate]
    assert len(behind) == (3 if lock == "while_executing" else 1)
    for result in behind:  # in the hands of the worker that lives
        eventually(lambda: f"[{result.id}]: lock {held.digest(task, 'a')}: asks for it again" in other.logs())  # noqa: B023
    killed.kill_group()
    floor.broker.forget_sweep()
    floor.gates.open("a:2", "a:3", "a:4", "a:5")
    for result in [*behind, first]:
        assert result.get(timeout=60) == "a"
    floor.settled()
    runs = [e["task_id"] for e in floor.runs("a")]
    assert (runs[0], sorted(runs[1:])) == (first.id, sorted([first.id, *(result.id for result in behind)]))
    assert floor.witness.overlaps() == []
    assert floor.free()
