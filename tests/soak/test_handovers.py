"""What kombu may have lost is told by what the broker was told, and by whose connection ended."""

import json

import pytest

from soak.handovers import Handovers
from soak.ledger import Ledger
from soak.story import Applied


def said(at, by, name, *args, db=2):
    quoted = " ".join('"' + arg.replace("\\", "\\\\").replace('"', '\\"') + '"' for arg in args)
    return f'+{at} [{db} {by}] "{name}" {quoted}'


def put(at, n):
    return said(at, "a:1", "LPUSH", "celery", json.dumps({"headers": {"id": f"c{n}"}, "properties": {"delivery_tag": f"t{n}"}}))


def noted(at, n):
    return said(at, "a:2", "HSET", "unacked", f"t{n}", "[]")


def comes(at, by, worker):
    return said(at, by, "CLIENT", "SETNAME", worker, db=0)


def asks(at, by):
    return said(at, by, "BRPOP", "celery", "1")


@pytest.fixture
def handovers(tmp_path):
    def read(*lines):
        ledger = Ledger.__new__(Ledger)
        ledger.path = tmp_path / "monitor"
        ledger.path.write_text("\r\n".join(lines))
        return Handovers(ledger)

    return read


KILL = Applied(10.5, "kill main", "w", 11.0)
BEGIN = comes(1, "a:9", "w"), put(2, 1)


def lost(handovers, *faults, there=(), alive=("a:10",)):
    return {task_id: loss.cause for task_id, loss in handovers.lost(set(there), set(alive), faults).items()}


def test_what_was_noted_or_is_in_its_queue_is_not_lost(handovers):
    assert lost(handovers(*BEGIN, asks(3, "a:9"), noted(4, 1))) == {}
    assert lost(handovers(*BEGIN, asks(3, "a:9")), there=["t1"]) == {}
    assert lost(handovers(*BEGIN, asks(3, "a:9"), noted(4, 1), put(5, 1)), KILL) == {"c1": None}


def test_a_connection_that_a_fault_ended_before_its_worker_asked_again_may_have_taken_one_message_along(handovers):
    end = *BEGIN, asks(10, "a:9"), comes(12, "a:10", "w"), asks(12.5, "a:10")
    assert lost(handovers(*end), KILL) == {"c1": "kill main w"}
    assert lost(handovers(*end)) == {"c1": None}
    assert sorted(lost(handovers(put(2, 2), *end), KILL).values(), key=str) == [None, "kill main w"]


@pytest.mark.parametrize(
    "other",
    [Applied(10.5, "kill main", "x", 11.0), Applied(10.5, "pause shortly", "w", 11.0), Applied(8.0, "kill main", "w", 9.0),
     Applied(13.0, "kill main", "w", 14.0)],
    ids=["of another worker", "no end", "before it asked", "after it had asked again"],
)  # fmt: skip
def test_no_other_fault_may_have_done_it(handovers, other):
    end = *BEGIN, asks(10, "a:9"), comes(12, "a:10", "w"), asks(12.5, "a:10")
    assert lost(handovers(*end), other) == {"c1": None}


def test_a_question_whose_answer_came_or_that_was_over_before_the_message_was_put_took_nothing(handovers):
    assert lost(handovers(*BEGIN, asks(10, "a:9"), asks(12, "a:9")), KILL, alive=["a:9"]) == {"c1": None}
    assert lost(handovers(*BEGIN[:1], asks(5, "a:9"), put(8, 1)), KILL) == {"c1": None}


def test_a_message_is_in_between_from_when_it_was_put_until_it_is_noted(handovers):
    found = handovers(*BEGIN, noted(4, 1))
    assert found.in_between("c1", 2.5, 3)
    assert not found.in_between("c1", 5, 6)
    assert not found.in_between("c1", 1, 1.5)
