"""Messages that a broker delivers to a second worker while the first one lives, slow or frozen."""

import re

import pytest
from support.waiting import eventually

pytest_plugins = ["support.floor"]

#: kombu 5.7 and later have both options: an unacknowledged message comes again as soon as the timeout says so
COMES_AGAIN = {"visibility_timeout": 3, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}


@pytest.mark.conf(broker_transport_options=COMES_AGAIN)
def test_a_message_redelivered_while_its_run_lives_runs_once_and_its_result_stays(floor, start):
    """Plain Celery beside it, in the same workers, runs more than once.

    The tasks take 8 seconds, because the broker must find them unacknowledged after 3.
    """
    for process in [start("-c", "4", ready=False, SHOP_SIGNALS="tell") for _ in range(2)]:
        process.ready()
    plain = floor.shop.plain_late.delay("plain", 8)
    unique = floor.shop.late.delay("unique", 8)
    tracked = floor.shop.fails_tracked.delay("tracked", 8)
    assert unique.get(timeout=60) == "unique"
    assert plain.get(timeout=60) == "plain"
    with pytest.raises(ValueError, match="tracked"):
        tracked.get(timeout=60)
    floor.settled()

    assert len(floor.runs("plain")) > 1
    assert floor.witness.overlaps()[0]["key"] == "plain"
    assert len(floor.runs("unique")) == len(floor.runs("tracked")) == 1
    assert {e["key"] for e in floor.witness.overlaps()} == {"plain"}
    assert unique.result == "unique"
    assert floor.free()
    # The copies of a task with max_retries=0 were put off, again and again, without using up a retry; and not one of them
    # stored a STARTED of its own, neither during the run nor after it.
    assert len(floor.told("task_redelivered", task_id=tracked.id, decision="put off")) > 1
    assert [status for status, _ in floor.stored.history(tracked.id)] == ["STARTED", "FAILURE"]


@pytest.mark.conf(once_more_lease=2)
def test_a_worker_frozen_past_its_lease_and_thawed_disturbs_nobody(floor, start):
    """Of two frozen runs, one loses its lock to the next call, the other to a redelivered copy of its own message."""
    gated = floor.shop.gated
    frozen = start("-c", "2", SHOP_SIGNALS="tell")
    first, own = gated.delay("call"), gated.delay("copy")
    floor.running("call")
    floor.running("copy")
    frozen.signal_group("SIGSTOP")
    later = eventually(lambda: (again := gated.delay("call")) and not again.duplicate and again, within=60)
    floor.broker.deliver_again(floor.broker.find(own.id))
    start("-c", "2")
    floor.running("call", 2)
    floor.running("copy", 2)

    frozen.signal_group("SIGCONT")
    floor.gates.open("call:1", "copy:1")
    assert first.get(timeout=60) == "call"
    for lost in (first, own):
        eventually(lambda: floor.told("lock_lost", task_id=lost.id), within=60, what="the loss")  # noqa: B023
        eventually(lambda: re.search(rf"\[{lost.id}\]: lock \S+ was lost", frozen.logs()), within=60, what="the loss in the log")  # noqa: B023
    eventually(lambda: floor.ended("call") == floor.ended("copy") == 1, within=60)
    eventually(lambda: len(floor.witness.events("checked")) == 2, within=60)
    assert [e["lost"] for e in floor.witness.events("checked")] == [True, True]
    assert gated.delay("call").duplicate
    assert gated.delay("copy").duplicate

    floor.gates.open_all()
    assert later.get(timeout=60) == "call"
    floor.settled()
    assert own.result == "copy"
    for key in ("call", "copy"):
        assert len(floor.runs(key)) == 2
        old, new = (e["token"] for e in floor.runs(key))
        assert old < new
        assert [e["lost"] for e in floor.witness.events("checked", key)] == [True, False]
    assert floor.free()
