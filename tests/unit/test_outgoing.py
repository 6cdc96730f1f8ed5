"""How the code that decides about a publish tells the code that publishes; and nobody else."""

import contextvars
import threading

import pytest

from celery_once_more.lock_types import LOCK_TYPES
from celery_once_more.outgoing import Envelope, Reentry, carrying, envelope_for, reentering, reentry
from celery_once_more.ticket import EXEMPT, Ticket

TICKET = Ticket(
    task="shop.settle", task_id="own id", digest="d" * 22, lock=LOCK_TYPES["until_executed"], series=1, hop=0, queue="celery"
)
RETRY = Reentry("retry", "own id", None)


def settle():
    return envelope_for("shop.settle", "own id")


def test_nothing_is_carried_by_itself():
    assert settle() is None
    assert reentry() is None


def test_a_ticket_is_carried_as_its_header():
    with carrying("shop.settle", "own id", TICKET):
        assert settle() == Envelope("shop.settle", "own id", TICKET.to_header())
    assert settle() is None


def test_that_there_is_no_ticket_is_carried_too():
    with carrying("shop.settle", "own id", None):
        assert settle() == Envelope("shop.settle", "own id", None)


def test_that_a_call_has_no_lock_is_carried_too():
    with carrying("shop.settle", "own id", None, exempt=True):
        assert settle() == Envelope("shop.settle", "own id", EXEMPT)


def test_a_ticket_goes_before_an_exemption():
    with carrying("shop.settle", "own id", TICKET, exempt=True):
        assert settle().header == TICKET.to_header()


@pytest.mark.parametrize(("task", "task_id"), [("shop.settle", "other id"), ("shop.other", "own id"), ("own id", "shop.settle")])
def test_what_else_is_published_meanwhile_is_left_alone(task, task_id):
    with carrying("shop.settle", "own id", TICKET):
        assert envelope_for(task, task_id) is None


def test_a_publish_inside_a_publish_has_its_own_and_then_the_first_comes_back():
    with carrying("shop.settle", "own id", TICKET):
        with carrying("shop.log", "log id", None):
            assert envelope_for("shop.log", "log id") is not None
            assert settle() is None
        assert settle() is not None


def carried():
    with carrying("shop.settle", "own id", TICKET):
        raise ValueError


def reentered():
    with reentering(RETRY):
        raise ValueError


@pytest.mark.parametrize("fails", [carried, reentered])
def test_an_error_on_the_way_leaves_nothing_behind(fails):
    with pytest.raises(ValueError):  # noqa: PT011
        fails()
    assert settle() is None
    assert reentry() is None


def test_a_reentry_is_known_inside_and_forgotten_outside():
    with reentering(RETRY):
        assert reentry() is RETRY
        with reentering(Reentry("put off", "own id", None)):
            assert reentry().why == "put off"
        assert reentry() is RETRY
    assert reentry() is None


def seen_by(run):
    """What code that ``run`` runs sees of an envelope and a reentry that are open here."""
    seen = []
    with carrying("shop.settle", "own id", TICKET), reentering(RETRY):
        run(lambda: seen.append((settle(), reentry())))
    return seen


def in_a_thread(look):
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()


def in_an_empty_context(look):
    contextvars.Context().run(look)


@pytest.mark.parametrize("run", [in_a_thread, in_an_empty_context])
def test_another_thread_or_greenlet_sees_nothing_of_it(run):
    assert seen_by(run) == [(None, None)]
