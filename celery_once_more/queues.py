"""The queue that a call goes to, named as the app's router resolves it; and back from a delivery to that name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import Celery, Task

#: what ``send_task`` takes by name, and so does not show to a router
NOT_ROUTED = frozenset(
    "countdown eta producer connection router result_cls expires publisher link link_error add_to_parent group_id "
    "group_index retries chord reply_to time_limit soft_time_limit root_id parent_id route_name shadow chain "
    "replaced_task_nesting ignore_result".split()
)


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
    if routed.get("exchange") and routed.get("routing_key"):
        exchange = routed["exchange"]
        return delivered_from(app, getattr(exchange, "name", exchange), routed["routing_key"])
    queue = routed.get("queue")
    return getattr(queue, "name", queue)


def delivered_from(app: Celery, exchange: str | None, routing_key: str | None) -> str | None:
    """The queue name behind an exchange and a routing key."""
    if not exchange:
        return routing_key
    for name, queue in app.amqp.queues.items():
        bound_to = queue.exchange.name if queue.exchange is not None else ""
        if bound_to == exchange and queue.routing_key == routing_key:
            return str(name)
    return routing_key
