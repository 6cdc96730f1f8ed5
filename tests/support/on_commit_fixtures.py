"""pytest fixtures for publishing on commit, beside those of ``app_fixtures.py``."""

import logging
from types import SimpleNamespace

import pytest
from celery.signals import before_task_publish

from support.apps import unique
from support.broker import body
from support.on_commit import broker_away, ship


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
    return make(broker_away(nowhere), logging.ERROR, "lock_released", "refused")
