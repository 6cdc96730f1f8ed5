"""For how long a message may be delayed, and in which steps: rules of brokers."""

from __future__ import annotations

import math

from celery import Celery

#: seconds; kombu's default
VISIBILITY_TIMEOUT = 3600.0


def held_s(app: Celery, seconds: float) -> float:
    """``seconds`` for which a worker may hold a message back: never more than half the broker's visibility timeout."""
    transport = app.conf.broker_transport_options or {}
    visible_s = float(transport.get("visibility_timeout") or VISIBILITY_TIMEOUT)
    return whole_s(app, max(0.05, min(seconds, visible_s / 2)))


def whole_s(app: Celery, seconds: float) -> float:
    """``seconds`` in a form that the broker can delay a message by: rounded up, where it does so by whole ones."""
    return float(math.ceil(seconds)) if delays_in_broker(app) else seconds


def delays_in_broker(app: Celery) -> bool:
    """Whether RabbitMQ keeps messages until their ETA, which it counts in whole seconds and refuses below one."""
    declared = app.amqp.queues.values()
    return any((queue.queue_arguments or {}).get("x-queue-type") == "quorum" for queue in declared) and driver(app) == "amqp"


def driver(app: Celery) -> str:
    """kombu's word for what it talks to."""
    return str(app.producer_pool.connections.connection.transport.driver_type)
