"""Runs that lost their lock, or never had one: what their retry and their end leave behind. On a real store, with no worker."""

from contextlib import contextmanager

import pytest
from celery.app.task import Context
from celery.exceptions import Ignore, Reject, Retry
from support.apps import unique
from support.lock_db import held

from celery_once_more import end, start
from celery_once_more.locks import Renew
from celery_once_more.run import run_of
from celery_once_more.runtime import runtime
from celery_once_more.ticket import HEADER, read

pytest_plugins = ["support.app_fixtures"]


def settle(event_id):
    return event_id


@contextmanager
def delivery(task, header, **more):
    """One delivery of a message of this task, as the pool sees it: its request is the task's, and the store was asked."""
    request = Context(
        {"id": header["id"], "retries": 0, "delivery_info": {"exchange": "", "routing_key": "celery"}, HEADER: header, **more},
        args=("evt",),
        kwargs={},
        called_directly=False,
    )
    task.request_stack.push(request)
    try:
        start.ask(task)
        yield run_of(request)
    finally:
        task.request_stack.pop()


def sent(broker):
    """The tickets of the messages in the queue."""
    return [message["headers"][HEADER] for message in broker.waiting()]


def test_a_retry_of_an_outlived_run_leaves_its_message_in_the_broker(make_app, broker, locks):
    task = unique(make_app(), settle)
    task.delay("evt")
    (header,) = sent(broker)
    with delivery(task, header) as first:
        assert first.holds
        locks.flushdb()
        with delivery(task, header) as second:
            assert second.holds
        with pytest.raises(Ignore):
            task.retry(countdown=0)
    assert [ticket["hop"] for ticket in sent(broker)] == [0, 0]
    assert held(locks), "the lock is the second run's, still"


def test_a_run_without_a_lock_frees_the_one_that_the_keeper_took_for_it(make_app, broker, locks):
    task = unique(make_app(once_more_on_outage="proceed"), settle)
    task.delay("evt")
    (header,) = sent(broker)
    ticket = read(header, task=task.name, task_id=header["id"])
    locks.flushdb()
    store = runtime(task.app).store
    with delivery(task, header) as run:
        locks.flushdb()
        run.answer, run.unlocked = None, True
        (renewal,) = store.renew([Renew(ticket=ticket, run=run.run_id, lease_ms=60_000, retake=True)])
        assert renewal.verdict == "retaken"
        end.after_run(task, state="SUCCESS")
    assert not held(locks)
    assert store.look(ticket, run="")[0] == "done"


def test_a_run_without_a_lock_frees_the_one_that_its_message_waited_with(make_app, broker, locks):
    task = unique(make_app(), settle)
    task.delay("evt")
    (header,) = sent(broker)
    request = Context({"id": header["id"], HEADER: header}, called_directly=False)
    task.request_stack.push(request)
    try:
        run = start._run(task)
        run.unlocked = True
        start.note(request, run)
        end.after_run(task, state="SUCCESS")
    finally:
        task.request_stack.pop()
    assert not held(locks)


def next_ticket(broker, header):
    """What the message after this one carries."""
    (following,) = [ticket for ticket in sent(broker) if ticket["hop"] == header["hop"] + 1]
    return read(following, task=following["task"], task_id=following["id"])


def test_the_retry_of_a_run_without_a_lock_is_one_that_was_let_in(make_app, broker):
    """The store did not answer its start, and it ran all the same: its retry is put off where another run is in its way."""
    task = unique(make_app(once_more_on_outage="proceed"), settle, lock="while_executing", on_conflict="log")
    task.delay("evt")
    (header,) = sent(broker)
    with delivery(task, header) as run:
        run.answer, run.unlocked = None, True
        with pytest.raises(Retry):
            task.retry(countdown=0)
    assert not next_ticket(broker, header).meets_strategy(redelivered=False)


def test_a_replacement_by_the_same_call_is_one_that_was_let_in(make_app, broker):
    task = unique(make_app(), settle, lock="while_executing", on_conflict="log")
    task.delay("evt")
    (header,) = sent(broker)
    with delivery(task, header) as run:
        assert run.holds
        with pytest.raises(Ignore):
            task.replace(task.s("evt"))
    assert not next_ticket(broker, header).meets_strategy(redelivered=False)


def test_a_refused_run_whose_message_goes_back_to_the_queue_keeps_what_it_waited_with(make_app, broker, locks):
    """It was to be rescheduled, and could not be published."""
    task = unique(make_app(), settle, lock="until_and_while_executing", acks_late=True)
    task.delay("evt")
    (first,) = sent(broker)
    with delivery(task, first) as running:
        assert running.holds
        task.delay("evt")
        (second,) = [ticket for ticket in sent(broker) if ticket["id"] != first["id"]]
        with delivery(task, second) as refused:
            assert refused.waits
            end.after_run(task, state="REJECTED", retval=Reject("no broker", requeue=True))
            assert task.delay("evt").id == second["id"]
            end.after_run(task, state="FAILURE", retval=ValueError())
            assert not task.delay("evt").duplicate
