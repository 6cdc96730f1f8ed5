"""Orders of events that went wrong once, each told step by step, on the store and on the model."""

from dataclasses import replace

import pytest
from contract.stores import ticket
from contract.twins import HANDOVER, LEASE, WAIT, Twins

MESSAGE = ticket(task_id="evt_1")
RETRY = MESSAGE.at_hop(1)
OTHER = ticket(task_id="evt_2", series=2)


class Story:
    """The acts by short names."""

    def __init__(self, twins):
        self.twins = twins

    def acquire(self, of):
        return self.twins.do("acquire", of, wait_ms=WAIT).verdict

    def start(self, of, run, redelivered=False):
        return self.twins.do("start", of, run=run, lease_ms=LEASE, redelivered=redelivered).verdict

    def finish(self, of, run):
        return self.twins.do("finish", of, run=run)

    def requeue(self, of, run, hop):
        return self.twins.do("requeue", of, run=run, hop=hop, wait_ms=HANDOVER)

    def confirm(self, of, hop):
        self.twins.do("confirm", of, hop=hop, wait_ms=WAIT)

    def release(self, of):
        return self.twins.do("release", of)

    def renew(self, of, run, retake=False):
        return self.twins.do("renew", of, run=run, retake=retake)

    def lapse(self, of):
        self.twins.lapse(of.series)

    @property
    def holders(self):
        return {(held.task_id, held.phase, held.run, tuple(held.hops)) for held in self.twins.holders}


@pytest.fixture
def story(redis_server):
    twins = Twins(redis_server, MESSAGE.digest)
    twins.clear()
    return Story(twins)


def test_a_late_confirmation_does_not_take_the_say_from_a_run_of_the_old_message(story):
    """Run A published its retry; before it could confirm, message 0 was redelivered, and started first. That run may retry."""
    story.acquire(MESSAGE)
    story.start(MESSAGE, "A")
    story.requeue(MESSAGE, "A", 1)
    assert story.start(MESSAGE, "B", redelivered=True) == "run"
    story.confirm(MESSAGE, 1)
    assert story.start(MESSAGE, "B", redelivered=True) == "run"  # its reply was lost, and its message is spent by now
    assert story.requeue(MESSAGE, "B", 1)
    assert story.start(RETRY, "C") == "run"


def test_a_run_whose_message_was_spent_under_it_gives_the_lock_back_to_the_retry(story):
    story.acquire(MESSAGE)
    story.start(MESSAGE, "A")
    story.requeue(MESSAGE, "A", 1)
    story.start(MESSAGE, "B", redelivered=True)
    story.confirm(MESSAGE, 1)
    assert story.requeue(MESSAGE, "B", 0)  # Reject(requeue=True)
    assert story.holders == {("evt_1", "W", "B", (1,))}
    assert story.requeue(MESSAGE, "B", 0)  # its reply was lost
    assert story.start(MESSAGE, "C", redelivered=True) == "done"
    assert story.start(RETRY, "D") == "run"


def test_a_run_that_was_outlived_is_not_taken_for_the_run_that_put_the_lock_back(story):
    """A and B both want to publish message 1. A has no say; and when its publish fails, B's lock is not freed by it."""
    story.acquire(MESSAGE)
    story.start(MESSAGE, "A")
    story.lapse(MESSAGE)
    story.start(MESSAGE, "B", redelivered=True)
    assert story.requeue(MESSAGE, "B", 1)
    assert not story.requeue(MESSAGE, "A", 1)
    story.confirm(MESSAGE, 1)
    assert story.finish(MESSAGE, "A") == "lost"
    assert story.start(RETRY, "C") == "run"


def test_a_message_whose_child_died_before_it_asked_moves_on_whoever_had_put_its_lock_back(story):
    """``retry_on_worker_lost``: no run can speak for it, so the message itself does, while it is a good one."""
    story.acquire(MESSAGE)
    story.start(MESSAGE, "A")
    story.requeue(MESSAGE, "A", 1)
    story.confirm(MESSAGE, 1)
    assert not story.requeue(MESSAGE, "", 1)  # message 0 is spent
    assert story.requeue(RETRY, "", 2)
    assert story.requeue(RETRY, "", 2)  # its reply was lost
    assert story.start(RETRY.at_hop(2), "B") == "run"


def test_a_copy_without_a_ticket_of_a_message_that_is_done_does_not_take_the_lock_of_another_call(story):
    """The other call has the same task id, which was used a second time."""
    bare = replace(MESSAGE, series=9, known=False, admitted=False)
    story.start(bare, "A")
    story.finish(bare, "A")
    assert story.acquire(MESSAGE) == "admitted"
    assert story.start(bare, "B", redelivered=True) == "done"
    assert story.holders == {("evt_1", "W", "", (0,))}


def test_a_message_without_a_ticket_that_is_refused_does_not_take_the_lock_that_waits_under_its_name(story):
    bare = replace(MESSAGE, series=9, known=False, admitted=False)
    story.acquire(MESSAGE)
    third = ticket(task_id="evt_3", series=3)
    story.start(third, "Y")  # its lock was lost; that mine waits is not in its way
    story.requeue(OTHER, "X", 0)
    story.lapse(OTHER)
    assert story.start(bare, "A") == "conflict"
    assert ("evt_1", "W", "", (0,)) in story.holders
    story.finish(third, "Y")
    assert story.start(MESSAGE, "B") == "run"


def test_a_message_without_a_ticket_that_is_refused_does_not_wipe_out_what_is_done(story):
    bare = replace(MESSAGE, series=9, known=False, admitted=False)
    story.start(bare, "A")
    story.finish(bare, "A")
    story.acquire(OTHER)
    assert story.start(bare, "B") == "conflict"
    story.release(OTHER)
    assert story.start(bare, "C", redelivered=True) == "done"


def test_a_lock_is_not_retaken_over_a_lapsed_holder_that_nobody_told_of(story):
    story.start(OTHER, "X")
    story.lapse(OTHER)
    assert story.renew(MESSAGE, "A", retake=True) == "lost"
    assert [held.task_id for held in story.twins.do("reap", MESSAGE).lapsed] == ["evt_2"]
    assert story.renew(MESSAGE, "A", retake=True) == "retaken"
    assert story.renew(OTHER, "X", retake=True) == "lost"


def test_a_publish_that_is_sent_twice_tells_of_a_lapsed_holder_once(story):
    story.acquire(MESSAGE)
    story.start(OTHER, "X")
    story.lapse(OTHER)
    told = [story.twins.do("acquire", MESSAGE, wait_ms=WAIT).lapsed for _ in range(2)]
    assert [len(lapsed) for lapsed in told] == [1, 0]


def test_a_run_that_lapsed_and_was_not_outlived_ends_as_if_nothing_had_been(story):
    story.acquire(MESSAGE)
    story.start(MESSAGE, "A")
    story.lapse(MESSAGE)
    assert story.renew(MESSAGE, "A") == "renewed"
    story.lapse(MESSAGE)
    assert story.finish(MESSAGE, "A") == "freed"
    assert story.start(MESSAGE, "B", redelivered=True) == "done"


def test_the_retry_starts_before_its_publisher_could_confirm_it(story):
    story.acquire(MESSAGE)
    story.start(MESSAGE, "A")
    story.requeue(MESSAGE, "A", 1)
    assert story.start(RETRY, "B") == "run"
    assert story.start(MESSAGE, "C", redelivered=True) == "busy"
    story.confirm(MESSAGE, 1)
    assert story.start(MESSAGE, "C", redelivered=True) == "done"
    assert story.finish(MESSAGE, "A") == "lost"
    assert story.finish(RETRY, "B") == "freed"


def test_a_child_that_dies_between_requeue_and_publish_leaves_the_old_message_good(story):
    story.acquire(MESSAGE)
    story.start(MESSAGE, "A")
    story.requeue(MESSAGE, "A", 1)
    assert story.requeue(MESSAGE, "A", 0)  # its main process gives the message back
    assert story.start(MESSAGE, "B", redelivered=True) == "run"


def test_a_lock_that_was_flushed_is_found_by_two_messages_and_one_runs_at_a_time(story):
    story.acquire(MESSAGE)
    story.twins.flush()
    assert story.acquire(OTHER) == "admitted"
    assert story.start(MESSAGE, "A") == "run"
    assert story.start(OTHER, "B") == "held"
    story.finish(MESSAGE, "A")
    assert story.start(OTHER, "B") == "run"
