"""What may happen to a call, played with real workers. Each scenario answers with the faults it saw, in sentences.

They are functions, so that a worker without one rule of the protocol (``mutants.py``) can be put through the same.
"""

from celery import chain

from support.kills import CHILD_POINTS
from support.waiting import eventually

ADMITTED_BETWEEN = "a duplicate was admitted while the retry was on its way"
ADMITTED_BESIDE = "a duplicate was admitted while a run was on"
RAN_BESIDE = "two runs were on at once"
RAN_TWICE = "a message that was over ran again"
LOST = "a call was lost"
NOT_FREED = "the lock was not freed at the end"


def _faults(**seen):
    """``LOST=True`` -> its sentence."""
    return [globals()[name] for name, so in seen.items() if so]


def retry_that_waits(floor):
    """From the end of the first run to the start of the second, for two leases, the call is published over and over."""
    task, admitted = floor.shop.retries, []
    first = task.delay("r", countdown=4)
    floor.running("r")
    floor.gates.open("r:1")

    def over():
        if len(floor.runs("r")) > 1:
            return True
        again = task.delay("r", countdown=4)
        admitted.extend([again.id] * (not again.duplicate))
        return bool(admitted)

    eventually(over, within=60, what="the second run")
    floor.gates.open_all()
    if not admitted:
        assert first.get(timeout=60) == "r"
    floor.settled()
    return _faults(ADMITTED_BETWEEN=admitted, RAN_BESIDE=floor.witness.overlaps(), NOT_FREED=floor.held())


def retry_before_the_last_runs_end(floor):
    """The second run begins before the first one's ``task_postrun``, which then finds a lock that is another run's."""
    task = floor.shop.retries
    floor.witness.redis.sadd("slow-postrun", "s")
    first = task.delay("s")
    floor.running("s")
    floor.gates.open("s:1")
    floor.running("s", 2)
    eventually(lambda: floor.witness.count("postrun", "s") == 1, within=60, what="the first run at its postrun")
    assert floor.witness.count("postrun-ends", "s") == 0
    refused = [task.delay("s").duplicate]
    floor.gates.open("s:postrun")
    eventually(lambda: floor.broker.find(first.id, retries=0) is None, within=60, what="the first message's acknowledgement")
    refused.append(task.delay("s").duplicate)
    assert floor.ended("s") == 1
    floor.gates.open("s:2")
    assert first.get(timeout=60) == "s"
    floor.settled()
    return _faults(ADMITTED_BESIDE=not all(refused), RAN_BESIDE=floor.witness.overlaps(), NOT_FREED=floor.held(),
                   RAN_TWICE=[e["retries"] for e in floor.runs("s")] != [0, 1])  # fmt: skip


def copy_of_a_message_that_a_retry_replaced(floor):
    """The first message is delivered once more while its retry waits, and once more while the retry runs."""
    task = floor.shop.retries
    first = task.delay("t", countdown=3)
    floor.running("t")
    message = floor.broker.find(first.id, retries=0)
    floor.gates.open("t:1")
    eventually(lambda: floor.broker.find(first.id, retries=1) and not floor.broker.find(first.id, retries=0), within=60,
               what="the retry in the first message's place")  # fmt: skip

    def deliver_again():
        floor.broker.deliver_again(message)
        eventually(lambda: not floor.broker.find(first.id, retries=0) or len(floor.runs("t", retries=0)) > 1, within=60,
                   what="an answer to the copy")  # fmt: skip

    deliver_again()
    if len(floor.runs("t", retries=0)) == 1:
        floor.running("t", 2)
        deliver_again()
    refused = task.delay("t").duplicate
    floor.gates.open_all()
    floor.settled()
    return _faults(RAN_TWICE=len(floor.runs("t", retries=0)) > 1, ADMITTED_BESIDE=not refused, NOT_FREED=floor.held(),
                   LOST=not first.successful(), RAN_BESIDE=floor.witness.overlaps())  # fmt: skip


def crash_after_a_copy_was_answered(floor, start, **env):
    """A message is delivered to a second worker while its run lives; then the first worker dies."""
    doomed = start("-c", "1", **env)
    first = floor.shop.gated.delay("b")
    floor.running("b")
    second = start("-c", "1", **env)
    eventually(lambda: "one more delivery" in second.logs(), within=60, what="the second worker's answer to the copy")
    refused = floor.shop.gated.delay("b").duplicate
    assert len(floor.runs("b")) == 1
    floor.gates.open("b:2")
    doomed.kill_group()
    floor.broker.forget_sweep()
    floor.settled()
    return _faults(LOST=not first.successful(), ADMITTED_BESIDE=not refused, RAN_BESIDE=floor.witness.overlaps(),
                   NOT_FREED=floor.held())  # fmt: skip


def child_dies_between_the_steps_of_its_end(floor):
    """Three calls, each with a chain behind it, whose child is killed: callbacks sent | stored | finished | …"""
    last = {}
    for point in CHILD_POINTS:
        floor.kills.arm(point, point, "child")
        last[point] = chain(floor.shop.gated.si(point).set(task_id=point), floor.shop.step.si(f"after {point}")).delay()
    floor.gates.open_all()
    floor.settled()
    return after_deaths(floor, last)


def after_deaths(floor, last):
    """The steps behind the calls are plain tasks: sent twice by a call that ran twice, they may well run at once."""
    assert {e["key"] for e in floor.witness.events("killed")} == set(last), "not every one of them was killed"
    return _faults(
        LOST=[p for p, result in last.items() if not (result.successful() and result.parent.successful())],
        RAN_TWICE=len(floor.runs("finished")) > 1 or len(floor.runs("unacknowledged")) > 1,
        RAN_BESIDE=[e for e in floor.witness.overlaps() if e["key"] in last],
        NOT_FREED=floor.held(),
    )


NEVER_RAN = "a call that was admitted did not run, or not under its lock"
DROPPED = "a message that was admitted was dropped"
ADMITTED_BY_NAME = "a duplicate of a message published by name was admitted"


def plain_run(floor, worker):
    """One call; given up after its message has come three times."""
    call = floor.shop.late.delay("p")
    received = f"Task {floor.shop.late.name}[{call.id}] received"
    eventually(lambda: call.ready() or worker.logs().count(received) > 2, within=60, what="the end of the call")
    return _faults(NEVER_RAN=not floor.runs("p") or floor.runs("p")[0]["token"] is None)


def end_of_a_run(floor, worker):
    """The message is acknowledged after all of the run's signals."""
    floor.shop.late.delay("e")
    floor.settled()
    return _faults(NOT_FREED=floor.held())


def admitted_message_meets_another_run(floor, worker):
    """The store is flushed while a message waits for its ETA, and the same call, published again, runs when it starts."""
    task = floor.shop.gated
    waits = task.apply_async(("h",), countdown=2)
    floor.flush_locks()
    runs = task.delay("h")
    assert not runs.duplicate
    floor.running("h")
    assert floor.runs("h")[0]["task_id"] == runs.id
    eventually(lambda: f"is held by {runs.id}" in worker.logs(), within=60, what="the waiting message's start")
    floor.gates.open_all()
    floor.settled()
    return _faults(DROPPED=not waits.successful(), RAN_BESIDE=floor.witness.overlaps(), NOT_FREED=floor.held())


def publish_by_name(floor, worker):
    """``send_task`` in a process that knows the task: its app is finalized, as one with shared tasks is."""
    floor.shop.app.finalize()
    floor.shop.app.send_task(floor.shop.gated.name, ("n",), countdown=2)  # its start would take the lock as well
    again = floor.shop.gated.delay("n")
    floor.gates.open_all()
    floor.settled()
    return _faults(ADMITTED_BY_NAME=not again.duplicate, RAN_BESIDE=floor.witness.overlaps(), NOT_FREED=floor.held())
