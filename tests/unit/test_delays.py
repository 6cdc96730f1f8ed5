"""For how long a message may be delayed, by a worker and by the broker."""

import pytest
from celery import Celery
from kombu import Queue

from celery_once_more import delays


@pytest.fixture
def make_app():
    apps = []

    def make(broker="memory://", **conf):
        apps.append(Celery("unit", broker=broker, set_as_current=False))
        apps[-1].conf.update(conf)
        return apps[-1]

    yield make
    for app in apps:
        app.close()


@pytest.mark.parametrize(
    ("seconds", "visible_s", "held_s"),
    [(10, None, 10), (0, None, 0.05), (-0.5, None, 0.05), (0.01, None, 0.05), (10_000, None, 1800.0), (60, 40, 20.0),
     (10, 40, 10), (30, 40, 20.0), (60, 0, 60)],
)  # fmt: skip
def test_a_message_is_held_back_for_no_more_than_half_the_visibility_timeout(make_app, seconds, visible_s, held_s):
    transport = {} if visible_s is None else {"visibility_timeout": visible_s}
    assert delays.held_s(make_app(broker_transport_options=transport), seconds) == held_s


def test_no_transport_options_at_all_are_no_obstacle(make_app):
    assert delays.held_s(make_app(broker_transport_options=None), 60.0) == 60.0


QUORUM = {"task_queues": [Queue("celery"), Queue("q", routing_key="q", queue_arguments={"x-queue-type": "quorum"})]}
CLASSIC = {"task_queues": [Queue("celery")]}


@pytest.mark.parametrize(
    ("broker", "conf", "delayed"),
    [("pyamqp://", QUORUM, True), ("pyamqp://", CLASSIC, False), ("redis://", QUORUM, False), ("memory://", {}, False)],
)
def test_rabbitmq_delays_messages_for_an_app_with_a_quorum_queue_and_by_whole_seconds(make_app, broker, conf, delayed):
    app = make_app(broker, **conf)
    assert delays.delays_in_broker(app) is delayed
    held = [delays.held_s(app, seconds) for seconds in (0, 0.4, 1.0, 7.2)]
    assert held == ([1.0, 1.0, 1.0, 8.0] if delayed else [0.05, 0.4, 1.0, 7.2])
