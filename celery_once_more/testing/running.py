"""Runs one message of a task in this process as a worker's pool child would, cut off from the app's broker and results.

Locks are off in here: a lock lapses, and what a crash leaves must be right without it. What the task publishes goes to a
broker in memory, from which nobody consumes; a retry is noted, so that the test can deliver it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from celery import Celery, Task, signals, states
from celery.app.trace import build_tracer
from celery.backends.base import DisabledBackend
from celery.exceptions import Reject

from celery_once_more import crash
from celery_once_more.testing import messages
from celery_once_more.testing.instruments import returned, watch_all
from celery_once_more.testing.instruments.boundary import Replaced
from celery_once_more.testing.points import raised_at
from celery_once_more.testing.records import End, Message

#: classes of errors with which a job says that a person has to look
Parked = tuple[type[BaseException], ...]


def run(task: Task, message: Message, watcher: crash.Watcher, sent: Callable[[Message], None], parked: Parked) -> End:
    """Run the message to its end.

    Args:
        watcher: is told of each place; what it raises goes through.
        sent: is told of each retry that was published.
        parked: an end with one of these errors counts as parked.
    """
    args, kwargs, embed = messages.unpacked(message)
    request = {
        **message.headers,
        **embed,
        "hostname": "crash-points",
        "is_eager": False,
        "delivery_info": {"redelivered": message.redelivered, "exchange": "", "routing_key": "celery", "priority": None},
    }
    with _cut_off(task.app, task), _retries_noted(task, message.task_id, sent), watch_all(task.app), returned(task):
        trace = build_tracer(task.name, task, app=task.app)
        crash.watcher = watcher
        try:
            _, info, _, _ = trace(message.task_id, args, kwargs, request)
        finally:
            crash.watcher = None
    return _end(info, parked)


def _end(info: Any, parked: Parked) -> End:
    if info is None:
        return End(state=states.SUCCESS)
    error = info.retval
    requeued = isinstance(error, Reject) and bool(error.requeue)
    return End(
        state=info.state,
        error=f"{type(error).__name__}: {error}",
        where=raised_at(error),
        parked=isinstance(error, parked),
        requeued=requeued,
    )


@contextmanager
def _retries_noted(task: Task, task_id: str, sent: Callable[[Message], None]) -> Iterator[None]:
    def receive(headers: Any = None, body: Any = None, **_: Any) -> None:
        if headers and (headers.get("id"), headers.get("task")) == (task_id, task.name):  # replace() gives it to another task
            sent(messages.packed(task.app, task, headers, body))

    signals.after_task_publish.connect(receive, weak=False)
    try:
        yield
    finally:
        signals.after_task_publish.disconnect(receive)


_IN_MEMORY = {
    "broker_url": "memory://",
    "broker_read_url": "memory://",
    "broker_write_url": "memory://",
    "broker_transport_options": {},
    "broker_connection_retry": False,
}


@contextmanager
def _cut_off(app: Celery, task: Task) -> Iterator[None]:
    with ExitStack() as undo:
        for name, value in _IN_MEMORY.items():
            undo.callback(app.conf.__setitem__, name, app.conf[name])
            app.conf[name] = value
        _forget_pools(app)
        undo.callback(_forget_pools, app)
        replaced = Replaced()
        undo.callback(replaced.restore)
        for owner, name in ((app._local, "backend"), (app, "_backend_cache"), (task, "_backend")):
            replaced.put(owner, name, DisabledBackend(app=app))
        for other in list(app.tasks.values()):
            options = getattr(other, "once_more", None)
            if options is not None and options.lock is not None:
                replaced.put(type(other), "once_more", replace(options, lock=None))
        yield


def _forget_pools(app: Celery) -> None:
    """Let the app make new connections; those it has stay open: they may belong to the process this one was forked from."""
    app._pool = None
    amqp = vars(app).get("amqp")
    if amqp is not None:
        amqp._producer_pool = None
