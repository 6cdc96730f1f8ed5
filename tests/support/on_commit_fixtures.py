"""What publishing on commit has in common over both database layers: ``pytest_plugins``, after ``support.app_fixtures``."""

import logging
from types import SimpleNamespace

import pytest
from celery.signals import before_task_publish

from celery_once_more import ArgumentsError, ConfigurationError
from support.apps import unique
from support.broker import body


def ship(order, note=None):
    return order


#: a call that is wrong in itself: arguments, options, and the error
BAD_CALLS = [
    pytest.param((), {}, TypeError, "missing 1 required positional argument", id="arguments that do not fit"),
    pytest.param(({1, 2},), {}, ArgumentsError, "argument order has no stable JSON form", id="no stable form"),
    pytest.param(("order_1",), {"on_conflict": "rais"}, ConfigurationError, "did you mean 'raise'", id="wrong option"),
]


@pytest.fixture
def sent(broker):
    """``sent()`` -> the first argument of every message in the queue, in order."""
    return lambda: [body(message)[0][0] for message in broker.waiting()]


@pytest.fixture
def at_publish():
    """``at_publish(look)`` -> a list of what ``look()`` returned at every publish from now on."""
    receivers = []

    def watch(look):
        seen = []

        def receive(**_):
            seen.append(look())

        before_task_publish.connect(receive)
        receivers.append(receive)
        return seen

    yield watch
    for receive in receivers:
        before_task_publish.disconnect(receive)


@pytest.fixture(params=["conflict", "store down", "broker down"])
def failing(request, make_app, nowhere, told, caplog):
    """``failing.task(base)``: a task whose publish with "order_1" fails; the signal and the log line that tell of it."""

    def make(conf, level, signal, words, hold=False):
        def task(base):
            made = unique(make_app(**conf), ship, base=base, on_conflict="raise")
            if hold:
                made.delay("order_1")
                told.clear()
            return made

        def lines():
            return [r for r in caplog.records if "is not published after the commit" in r.getMessage()]

        return SimpleNamespace(task=task, level=level, signal=signal, words=words, lines=lines)

    if request.param == "conflict":
        return make({}, logging.WARNING, "lock_conflict", "is held by", hold=True)
    if request.param == "store down":
        return make({"once_more_redis_url": nowhere}, logging.ERROR, "store_unavailable", "refused")
    away = {"broker_url": nowhere, "task_publish_retry": False}
    return make(away, logging.ERROR, "lock_released", "refused")
