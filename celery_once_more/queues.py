"""The queue that a call goes to, named as the app's router resolves it; and back from a delivery to that name.

A queue is named by its name; one that stands for many (a fanout exchange: each worker has its own) by the exchange's. Where
a topic exchange hands one message to several queues, both sides name the same one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

from celery import Celery, Task
from kombu.entity import Queue
from kombu.transport.native_delayed_delivery import MAX_NUMBER_OF_BITS_TO_USE

from celery_once_more import delays

#: what ``send_task`` takes by name, and so does not show to a router
NOT_ROUTED = frozenset(
    "countdown eta producer connection router result_cls expires publisher link link_error add_to_parent group_id "
    "group_index retries chord reply_to time_limit soft_time_limit root_id parent_id route_name shadow chain "
    "replaced_task_nesting ignore_result".split()
)

#: the exchanges in which RabbitMQ keeps a message until its ETA, for an app with quorum queues
_DELAYING = re.compile(r"(?:.+_)?celery_delayed_(?:\d+|delivery)")
#: what they put before a routing key: the delay, bit by bit
_DELAY = re.compile(rf"(?:[01]\.){{{MAX_NUMBER_OF_BITS_TO_USE}}}")


class Resolved:
    """A router for ``send_task`` that repeats one answer, so that the app's own is asked once per publish."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)

    def route(self, options: dict[str, Any], *_: Any) -> dict[str, Any]:
        return {**options, **self._options}


def resolve(task: Task, args: Any, kwargs: Any, message: Mapping[str, Any]) -> dict[str, Any]:
    """What ``send_task`` would ask the router, and its answer: options with the route in them.

    Raises:
        celery.exceptions.QueueNotFound: as ``send_task`` would.
    """
    options = {**task._get_exec_options(), **message}
    asked = {name: value for name, value in options.items() if name not in NOT_ROUTED}
    router = message.get("router") or task.app.amqp.router
    routed: dict[str, Any] = router.route(asked, message.get("route_name") or task.name, args, kwargs, task)
    return routed


def published_to(app: Celery, routed: Mapping[str, Any]) -> str | None:
    """The queue name of resolved options."""
    exchange, routing_key = routed.get("exchange"), routed.get("routing_key")
    queue = _declared(app, routed.get("queue"))
    if exchange and routing_key:
        return delivered_from(app, exchange, routing_key)
    if not isinstance(queue, Queue):
        return queue
    if _type(queue.exchange) == "direct":  # sent to the queue itself, past its exchange
        return str(queue.name)
    exchange, routing_key = exchange or queue.exchange, routing_key or queue.routing_key
    found = _found(app, exchange, routing_key)
    return _name(found or queue) if found or routing_key == queue.routing_key else routing_key


def delivered_from(app: Celery, exchange: Any, routing_key: str | None) -> str | None:
    """The queue name behind an exchange and a routing key."""
    found = _found(app, exchange, routing_key)
    return _name(found) if found is not None else _without_delay(exchange, routing_key)


def way_back(app: Celery, delivery: Mapping[str, Any]) -> dict[str, Any]:
    """What to publish a delivered message with, so that it comes to its own queue again.

    Celery keeps the exchange and the routing key, and lets the router fill in a queue, which then goes before them where
    RabbitMQ delays the message.
    """
    exchange, routing_key = delivery.get("exchange"), delivery.get("routing_key")
    found = _found(app, exchange, routing_key) if exchange else None
    if found is None:
        return {}
    back = {"queue": found.name}
    return {**back, "exchange": None, "routing_key": None} if _delays(exchange) else back


def straight(app: Celery, name: str) -> dict[str, Any] | None:
    """What to publish with to this queue and no other, past its exchange; ``None``: only a broadcast reaches it."""
    queue = _declared(app, name)
    if _type(getattr(queue, "exchange", None)) == "fanout" and delays.driver(app) != "amqp":
        return None
    return {"queue": name, "exchange": None, "routing_key": None, "exchange_type": "direct"}


def is_one_list(app: Celery, name: str) -> bool:
    """Whether a message that goes to the queue of this name stands there, and nowhere else."""
    queue = _declared(app, name)
    if not isinstance(queue, Queue) or queue.name != name or _type(queue.exchange) != "direct":
        return False
    bound = [other for other in app.amqp.queues.values() for source, key in _bindings(other)
             if source.name == queue.exchange.name and key == queue.routing_key]  # fmt: skip
    return len(bound) == 1


def _declared(app: Celery, queue: Any) -> Any:
    if isinstance(queue, Queue):
        return queue
    declared = app.amqp.queues
    return declared.get(queue) or declared.aliases.get(queue) or queue


def _found(app: Celery, exchange: Any, routing_key: str | None) -> Queue | None:
    """The declared queue that gets such a message; of several the one with the plainest binding."""
    if routing_key is None:
        return None
    if not exchange:
        return app.amqp.queues.get(routing_key)
    name, key, delayed = getattr(exchange, "name", exchange), _without_delay(exchange, routing_key), _delays(exchange)
    fitting = []
    for queue in app.amqp.queues.values():
        for source, pattern in _bindings(queue):
            kind = _type(source)
            if (kind != "direct" if delayed else source.name == name) and _fits(kind, pattern, key, delayed):
                wild = pattern.count("#"), pattern.count("*"), -pattern.count(".")
                fitting.append(((pattern != key, wild, str(queue.name)), queue))
    return min(fitting, key=itemgetter(0))[1] if fitting else None


def _bindings(queue: Queue) -> Iterator[tuple[Any, str]]:
    for bound in (queue, *(queue.bindings or ())):
        if bound.exchange is not None:
            yield bound.exchange, bound.routing_key or ""


def _fits(kind: str, pattern: str, key: str | None, delayed: bool) -> bool:
    if kind == "fanout" and not delayed:
        return True
    return pattern == key or (kind != "direct" and _matches(pattern.split("."), (key or "").split(".")))


def _matches(pattern: list[str], words: list[str]) -> bool:
    """As a topic exchange does: ``*`` is one word, ``#`` any number of them."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_matches(pattern[1:], words[skipped:]) for skipped in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and _matches(pattern[1:], words[1:])


def _name(queue: Queue) -> str:
    return str(queue.exchange.name if _type(queue.exchange) == "fanout" else queue.name)


def _type(exchange: Any) -> str:
    return getattr(exchange, "type", None) or "direct"


def _delays(exchange: Any) -> bool:
    return bool(_DELAYING.fullmatch(getattr(exchange, "name", exchange) or ""))


def _without_delay(exchange: Any, routing_key: str | None) -> str | None:
    return _DELAY.sub("", routing_key, count=1) if routing_key and _delays(exchange) else routing_key
