"""A duplicate that somebody counts, or goes on after: everything that a caller holds ends, and nothing that has finished fails.

A run stands at its gate and holds the lock for as long as a test takes; the duplicates are then settled at their start.
"""

import pytest
from celery import VERSION, chain, chord, group
from celery.exceptions import ChordError
from support.waiting import eventually

from celery_once_more import DuplicateDropped, LockConflict

pytest_plugins = ["support.floor"]

CONF = {}
WORKER = ("-c", "3"), {}

#: task whose lock is held -> state and error of a duplicate that is settled at its start
ENDS = {"gated": ("REVOKED", DuplicateDropped), "raises": ("FAILURE", LockConflict)}


@pytest.fixture(params=ENDS, ids=["log", "raise"])
def held(request, floor, living):
    """A task whose lock on "a" is held by a run."""
    task = getattr(floor.shop, request.param)
    task.holder = task.delay("a")
    floor.running("a")
    return task


@pytest.fixture
def is_duplicate(held):
    """Whether a result ended as that of a duplicate of the holder."""
    state, error = ENDS[held.name.rpartition(".")[2]]

    def is_duplicate(result):
        ends(result)
        return result.state == state and isinstance(result.result, error) and result.result.holder == held.holder.id

    return is_duplicate


def ends(result):
    eventually(result.ready, within=60, what=f"an end of {result!r}")


def after_all(floor, held):
    """The holder had no part in any of it."""
    floor.gates.open("a:1")
    assert held.holder.get(timeout=60) == "a"
    floor.settled()
    assert len(floor.runs("a")) == 1
    assert floor.free()


def test_a_duplicate_in_a_group_ends_and_so_does_the_group(floor, held, is_duplicate):
    result = group(held.s("a"), floor.shop.step.s("b"), floor.shop.late.s("c")).delay()
    ends(result)
    assert is_duplicate(result[0])
    assert [member.get(timeout=60) for member in result[1:]] == ["b", "c"]
    after_all(floor, held)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_duplicate_in_a_chords_header_ends_the_chord(floor, held, is_duplicate, place):
    header = [floor.shop.step.s(f"b{i}") for i in range(2)]
    header.insert(place, held.s("a"))
    result = chord(header)(floor.shop.step.si("body"))
    ends(result)
    assert isinstance(result.result, ChordError)
    assert is_duplicate(result.parent[place])
    assert floor.runs("body") == []
    after_all(floor, held)


def test_a_chord_of_duplicates_alone_ends(floor, held, is_duplicate):
    result = chord([held.s("a"), held.s("a")])(floor.shop.step.si("body"))
    ends(result)
    assert isinstance(result.result, ChordError)
    assert all(is_duplicate(member) for member in result.parent)
    after_all(floor, held)


def test_a_duplicate_as_a_chords_body_ends_and_its_header_stays_a_success(floor, held, is_duplicate):
    result = chord([floor.shop.step.s("b"), floor.shop.step.s("c")])(held.si("a"))
    assert is_duplicate(result)
    assert [(member.state, member.result) for member in result.parent] == [("SUCCESS", "b"), ("SUCCESS", "c")]
    after_all(floor, held)


def test_a_duplicate_at_the_head_of_a_chain_ends_every_step_of_it(floor, held, is_duplicate):
    result = chain(held.si("a"), floor.shop.step.si("b"), floor.shop.step.si("c")).delay()
    for step in (result, result.parent, result.parent.parent):
        ends(step)
        assert not step.successful()
    assert is_duplicate(result.parent.parent)
    assert floor.runs("b") == floor.runs("c") == []
    after_all(floor, held)


def test_a_duplicate_as_a_later_step_ends_the_rest_and_the_step_before_stays_a_success(floor, held, is_duplicate):
    result = chain(floor.shop.step.si("b"), held.si("a"), floor.shop.step.si("c")).delay()
    ends(result)
    assert not result.successful()
    assert is_duplicate(result.parent)
    assert result.parent.parent.get(timeout=60) == "b"
    assert floor.runs("c") == []
    after_all(floor, held)


def test_a_duplicate_as_a_link_ends_and_its_parent_stays_a_success(floor, held, is_duplicate):
    link = held.si("a").set(task_id="the link")
    parent = floor.shop.step.apply_async(("b",), link=link)
    assert parent.get(timeout=60) == "b"
    assert is_duplicate(held.AsyncResult("the link"))
    assert parent.state == "SUCCESS"
    after_all(floor, held)


def test_a_duplicate_with_a_link_of_its_own_ends_and_the_link_does_not_run(floor, held, is_duplicate):
    result = held.apply_async(("a",), link=floor.shop.step.si("b"))
    assert is_duplicate(result)
    after_all(floor, held)
    assert floor.runs("b") == []


def nested(a, step):
    """Canvases with the duplicate ``a`` deep inside. A group after a step that fails is not among them: plain Celery, too,
    leaves its members pending. Celery 5.6 leaves whatever follows a failed chord in a chain.
    """
    amid_a_chain = chain(step("b"), chord([a, step("c")], step("d")), step("e"))
    return ({"in a chord amid a chain": amid_a_chain} if VERSION >= (5, 7) else {}) | {
        "in a group after a step": chain(step("b"), group(a, step("c"))),
        "in a group before a step": chain(group(a, step("c")), step("d")),
        "in a group between steps": chain(step("b"), group(a, step("c")), step("d")),
        "at the head of a chain in a header": chord([chain(a, step("b")), step("c")], step("d")),
        "at the end of a chain in a header": chord([chain(step("b"), a), step("c")], step("d")),
        "amid a chain in a header": chord([chain(step("b"), a, step("c")), step("d")], step("e")),
        "in a group in a header": chord([group(a, step("b")), step("c")], step("d")),
        "in a chain in a group": group(chain(a, step("b")), step("c")),
        "at the head of a body": chord([step("b"), step("c")], chain(a, step("d"))),
        "at the end of a body": chord([step("b"), step("c")], chain(step("d"), a)),
        "in a body that is a group": chord([step("b"), step("c")], group(a, step("d"))),
        "as a body amid a chain": chain(step("b"), chord([step("c"), step("d")], a), step("e")),
    }


def every(result):
    """A result, what it is made of, and what came before it."""
    if result is None:
        return []
    return [result, *(r for member in getattr(result, "results", ()) for r in every(member)), *every(result.parent)]


def test_wherever_a_duplicate_stands_in_a_canvas_every_result_ends(floor, held):
    canvases = {where: canvas.apply_async() for where, canvas in nested(held.si("a"), floor.shop.step.si).items()}
    for where, result in canvases.items():
        for part in every(result):
            eventually(part.ready, within=60, what=f"an end of {part!r}, {where}")
        assert any(isinstance(part.result, (DuplicateDropped, LockConflict)) for part in every(result) if hasattr(part, "result"))
    after_all(floor, held)


def test_a_chain_published_twice_runs_once_and_both_callers_results_end(floor, held, is_duplicate):
    first, second = (chain(held.si("x"), floor.shop.step.si("y")) for _ in range(2))
    first = first.delay()
    floor.running("x")
    second = second.delay()
    ends(second)
    assert second.parent.result.holder == first.parent.id
    floor.gates.open("x:1")
    assert first.get(timeout=60) == "y"
    after_all(floor, held)
    assert (len(floor.runs("x")), len(floor.runs("y"))) == (1, 1)


def test_a_step_that_its_redelivered_parent_sends_twice_keeps_its_own_result(floor, living):
    """Two messages with one task id: the second is no news, and what it leaves alone is the result of the first."""
    first = chain(floor.shop.step.si("b"), floor.shop.gated.si("a")).apply_async(countdown=2)
    message = eventually(lambda: floor.broker.find(first.parent.id), within=60)
    floor.running("a")
    floor.broker.deliver_again(message)

    def answered():
        """Both messages of the step came, and one is left, which runs."""
        left = [message for message in floor.broker.unacknowledged() if message["headers"]["id"] == first.id]
        return living.logs().count(f"[{first.id}] received") == 2 and len(left) == 1

    eventually(answered, within=60)
    floor.gates.open("a:1")
    assert first.get(timeout=60) == "a"
    floor.settled()
    assert floor.stored.history(first.id) == [("SUCCESS", "a")]
    assert len(floor.runs("a")) == 1
