"""A delivery is settled when its last run is over and no message of it is under way; its outcome is that of its last run."""

import pytest

from celery_once_more.testing.deliveries import Delivery, Orders

START = ("start", {"redelivered": False, "retries": 0, "pid": 1})
AGAIN = ("start", {"redelivered": True, "retries": 0, "pid": 2})
RETRY = ("start", {"redelivered": False, "retries": 1, "pid": 2})


def end(state, requeued=False):
    return "end", {"state": state, "error": "", "requeued": requeued}


def cut(requeued=False, failed=False):
    return "cut", {"requeued": requeued, "failed": failed, "error": "WorkerLostError: gone"}


def sent(by):
    return "sent", {"by": by}


#: what was told -> the fates of the runs, and the outcome
SETTLED = [
    ((START, end("SUCCESS")), [None], "ended"),
    ((START, end("FAILURE")), [None], "ended"),
    ((START, cut(failed=True)), ["lost"], "lost"),
    ((START, cut(requeued=True), AGAIN, end("SUCCESS")), ["redelivered", None], "ended"),
    ((START, sent("main"), cut(), RETRY, end("SUCCESS")), ["retried", None], "ended"),
    ((START, sent("child"), end("RETRY"), RETRY, end("SUCCESS")), [None, None], "ended"),
    ((START, end("REJECTED", requeued=True), AGAIN, end("SUCCESS")), [None, None], "ended"),
    # its body published a retry, and then its process died
    ((START, sent("child"), cut(failed=True), RETRY, end("SUCCESS")), ["lost", None], "ended"),
    # Celery 5.7 finds the result that the child had stored
    ((START, cut()), [None], "ended"),
    # its process died before it could tell of its start
    ((cut(failed=True),), ["lost"], "lost"),
]


@pytest.mark.parametrize(("told", "fates", "outcome"), SETTLED)
def test_it_is_settled_with_the_last_word_and_not_before(told, fates, outcome):
    delivery = Delivery(task_id="id")
    for name, more in told:
        assert not delivery.settled
        delivery.read(name, more)
    assert delivery.settled
    assert ([run.fate for run in delivery.runs], delivery.outcome) == (fates, outcome)


def test_what_a_watcher_tells_belongs_to_the_run_that_it_watches():
    delivery = Delivery(task_id="id")
    for name, more in [START, ("told", "one"), cut(requeued=True), AGAIN, ("told", ["two", 2])]:
        delivery.read(name, more)
    assert [run.told for run in delivery.runs] == [["one"], [["two", 2]]]


def test_trouble_settles_it_as_hung():
    delivery = Delivery(task_id="id")
    delivery.read("trouble", "no watcher today")
    assert (delivery.settled, delivery.outcome, delivery.trouble) == (True, "hung", "no watcher today")


def test_an_order_counts_the_runs_and_knows_whom_the_main_process_accepted():
    orders = Orders()
    assert (orders.task_id, orders.arm) == ("", None)
    orders.give("id", {"at": "COMMIT", "turn": 2})
    assert (orders.task_id, orders.arm, orders.accepted_from()) == ("id", {"at": "COMMIT", "turn": 2}, 0)
    orders.note_accepted(7)
    assert [orders.started(), orders.started()] == [1, 2]
    assert orders.accepted_from() == 7
    orders.give("next", None)
    assert (orders.task_id, orders.arm, orders.accepted_from(), orders.started()) == ("next", None, 0, 1)


def test_an_order_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="there is room for"):
        Orders().give("id", "x" * 70_000)
