"""Messages without a ticket, or with one that is no good: by name, forged, damaged, of another version."""

import pytest
from celery import Celery
from celery.signals import before_task_publish
from support.waiting import eventually

from celery_once_more import DuplicateDropped, LockConflict

pytest_plugins = ["support.floor"]

#: a short lease: a copy that is put off comes again soon
CONF = {"once_more_lease": 2}
WORKER = ("-c", "3"), {"SHOP_SIGNALS": "tell"}
pytestmark = pytest.mark.conf(**CONF)


@pytest.fixture
def stranger(floor):
    """Another program's app, on the same broker: it has no task of ours."""
    conf = floor.shop.app.conf
    app = Celery("stranger", broker=conf.broker_url, backend=conf.result_backend, set_as_current=False)
    yield app
    app.close()


def test_a_name_published_in_a_process_that_knows_the_task_takes_the_lock_at_publish(floor, living):
    floor.shop.app.finalize()
    first = floor.shop.app.send_task(floor.shop.gated.name, ("a",))
    again = floor.shop.gated.delay("a")
    assert (again.duplicate, again.id) == (True, first.id)
    floor.running("a")
    assert floor.shop.gated.delay("a").id == first.id
    floor.gates.open("a:1")
    assert first.get(timeout=60) == "a"
    floor.settled()
    assert floor.free()
    assert len(floor.runs("a")) == 1


def test_a_name_published_twice_in_a_process_that_knows_the_task_runs_once(floor, living):
    floor.shop.app.finalize()
    first, second = (floor.shop.app.send_task(floor.shop.gated.name, ("a",)) for _ in range(2))
    with pytest.raises(DuplicateDropped):
        second.get(timeout=60)
    assert second.state == "REVOKED"
    assert second.result.holder == first.id
    floor.gates.open("a:1")
    assert first.get(timeout=60) == "a"
    floor.settled()
    assert len(floor.runs("a")) == 1
    assert floor.free()


def test_a_name_published_by_a_stranger_takes_the_lock_at_its_start(floor, living, stranger):
    first = stranger.send_task(floor.shop.gated.name, ("a",))
    floor.running("a")
    assert floor.runs("a")[0]["token"]
    again = floor.shop.gated.delay("a")
    assert (again.duplicate, again.id) == (True, first.id)
    second = stranger.send_task(floor.shop.gated.name, ("a",))
    eventually(second.ready, within=60)
    assert second.state == "REVOKED"
    (told,) = floor.told("lock_conflict", task_id=second.id)
    assert told["what"] == {"task_id": second.id, "digest": told["what"]["digest"], "holder": first.id, "phase": "running",
                            "side": "server", "decision": "dropped"}  # fmt: skip
    line = next(line for line in living.logs().splitlines() if f"[{second.id}]: lock" in line)
    for part in (floor.shop.gated.name, told["what"]["digest"], first.id, "dropped", "INFO"):
        assert part in line
    floor.gates.open("a:1")
    assert first.get(timeout=60) == "a"
    floor.settled()
    assert len(floor.runs("a")) == 1
    assert floor.free()


@pytest.mark.parametrize("name", ["gated", "raises"])
def test_one_id_published_twice_by_a_stranger_leaves_the_result_of_its_run_alone(floor, living, stranger, name):
    task, evt = getattr(floor.shop, name), f"evt_{name}"
    first = stranger.send_task(task.name, ("a",), task_id=evt)
    floor.running("a")
    stranger.send_task(task.name, ("a",), task_id=evt)
    eventually(lambda: len(floor.broker.unacknowledged()) == 1 and living.logs().count(f"[{evt}]: lock ") == 1, within=60)
    floor.gates.open("a:1")
    assert first.get(timeout=60) == "a"
    floor.settled()
    assert floor.stored.history(evt) == [("SUCCESS", "a")]
    assert len(floor.runs("a")) == 1


def test_a_conflict_at_the_start_with_raise_is_a_failure_with_lock_conflict(floor, living, stranger):
    first = floor.shop.raises.delay("a")
    floor.running("a")
    second = stranger.send_task(floor.shop.raises.name, ("a",))
    eventually(second.ready, within=60)
    assert (second.state, type(second.result).__name__) == ("FAILURE", "LockConflict")
    with pytest.raises(LockConflict) as caught:
        floor.shop.raises.AsyncResult(second.id).get(timeout=60)
    assert caught.value.holder == first.id
    floor.gates.open("a:1")
    assert first.get(timeout=60) == "a"
    floor.settled()
    assert len(floor.runs("a")) == 1


def test_a_conflict_at_the_start_with_raise_and_autoretry_runs_when_its_turn_comes(floor, living, stranger):
    first = floor.shop.insists.delay("a")
    floor.running("a")
    second = stranger.send_task(floor.shop.insists.name, ("a",))
    eventually(lambda: len(floor.told("lock_conflict", task_id=second.id)) >= 2, within=60, what="two refused starts")
    assert second.state == "RETRY"
    floor.gates.open_all()
    assert first.get(timeout=60) == second.get(timeout=60) == "a"
    floor.settled()
    assert [e["task_id"] for e in floor.runs("a")] == [first.id, second.id]
    assert not floor.witness.overlaps()
    assert floor.free()


BAD = {
    "no mapping": lambda ticket: "forged",
    "older version": lambda ticket: ticket | {"v": 0},
    "newer version": lambda ticket: ticket | {"v": 2, "more": "of it"},
    "no version": lambda ticket: {k: v for k, v in ticket.items() if k != "v"},
    "of another task": lambda ticket: ticket | {"task": "shop.other"},
    "of another call": lambda ticket: ticket | {"id": "another id"},
    "damaged digest": lambda ticket: ticket | {"digest": "*" * 22},
    "digest of a wrong kind": lambda ticket: ticket | {"digest": 5},
    "unknown lock": lambda ticket: ticket | {"lock": "until_doomsday"},
    "lock of a wrong kind": lambda ticket: ticket | {"lock": ["until_executed"]},
    "series out of bounds": lambda ticket: ticket | {"series": 1 << 60},
    "hop of a wrong kind": lambda ticket: ticket | {"hop": "0"},
    "negative hop": lambda ticket: ticket | {"hop": -1},
    "limit nought": lambda ticket: ticket | {"limit": 0},
    "half of it": lambda ticket: dict(list(ticket.items())[:4]),
    "empty": lambda ticket: {},
}


@pytest.fixture
def spoil(floor):
    """``spoil(function)``: from now on every ticket is sent as the function makes it of the true one."""
    connected = []
    floor.shop.app.finalize()  # so that the package's receiver, which writes the ticket, comes before these

    def spoil(function):
        def receive(headers, **_):
            headers["once_more"] = function(headers["once_more"])

        before_task_publish.connect(receive, weak=False)
        connected.append(receive)

    yield spoil
    for receive in connected:
        before_task_publish.disconnect(receive)


def test_a_bad_ticket_counts_as_none_and_its_message_runs_once_with_a_warning(floor, living, spoil):
    """It finds the lock that its publisher took, and frees it."""
    children, results = set(living.children), {}
    turn = iter(BAD.values())
    spoil(lambda ticket: next(turn)(ticket))
    floor.gates.open_all()
    for what in BAD:
        results[what] = floor.shop.gated.delay(what)
    for what, result in results.items():
        assert result.get(timeout=60) == what
        assert f"[{result.id}]: its ticket is not used, the message counts as one without" in living.logs()
    floor.settled()
    assert [len(floor.runs(what)) for what in BAD] == [1] * len(BAD)
    assert all(floor.runs(what)[0]["token"] for what in BAD)
    assert floor.free()
    assert set(living.children) == children


def test_a_redelivered_copy_of_a_message_with_a_bad_ticket_does_not_run_beside_it_nor_after_it(floor, living, spoil):
    spoil(BAD["older version"])
    first = floor.shop.gated.delay("a")
    floor.running("a")
    message = eventually(lambda: floor.broker.find(first.id), within=60)
    assert message["headers"]["once_more"]["v"] == 0
    floor.broker.deliver_again(message)
    eventually(lambda: floor.told("task_redelivered", task_id=first.id, decision="put off"), within=60)
    floor.gates.open_all()
    assert first.get(timeout=60) == "a"
    floor.broker.deliver_again(message)
    (told,) = eventually(lambda: floor.told("task_redelivered", task_id=first.id, decision="ended"), within=60)
    floor.settled()
    line = next(line for line in living.logs().splitlines() if f"[{first.id}]: lock" in line and line.endswith(": ended"))
    for part in ("INFO", floor.shop.gated.name, told["what"]["digest"], "one more delivery"):
        assert part in line
    assert len(floor.runs("a")) == 1
