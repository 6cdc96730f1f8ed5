"""A pool child dies where it is told to, but not before its main process knows that it runs the message.

Until then the main process would hand the message to another child, as one that nobody has run.
"""

import os
import signal
from contextlib import nullcontext

import pytest
from support.waiting import eventually

from celery_once_more.testing.deliveries import Orders
from celery_once_more.testing.telling import PoolRun, Teller

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a pool child is forked")


def dying(orders, app):
    """A process that is about to die as a pool child does, and the end of a pipe that it wrote to before."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        run = PoolRun(Teller(app, orders, lambda run: nullcontext(), writer), first=True)
        run.tell(run.arm)
        run.die()
    os.close(writer)
    return pid, reader


def test_it_dies_when_its_main_process_knows_of_it(app):
    orders = Orders()
    orders.give("id", 3)
    pid, reader = dying(orders, app)
    assert os.read(reader, 100) == b'["told", "id", 3]\n'
    orders.note_accepted(os.getpid())  # of another one
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    orders.note_accepted(pid)
    _, status = eventually(lambda: (ended := os.waitpid(pid, os.WNOHANG))[0] and ended)
    assert os.WTERMSIG(status) == signal.SIGKILL
    os.close(reader)


def test_only_the_first_delivery_is_given_its_order(app):
    orders = Orders()
    orders.give("id", {"at": "COMMIT"})
    teller = Teller(app, orders, lambda run: nullcontext(), 1)
    assert [PoolRun(teller, first=first).arm for first in (True, False)] == [{"at": "COMMIT"}, None]
