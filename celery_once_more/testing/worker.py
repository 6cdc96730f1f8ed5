"""A real prefork worker of the task's own app, forked from the test: its tasks need no module that can be imported.

It consumes from a queue of its own, which is gone with it, and ends with the test's process however that ends.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from celery import Celery, Task
from kombu.entity import Exchange, Queue
from kombu.exceptions import OperationalError

from celery_once_more.exceptions import ConfigurationError
from celery_once_more.testing.deliveries import Delivery, Orders
from celery_once_more.testing.errors import CrashTestError
from celery_once_more.testing.in_worker import UNACKED, Birth, live
from celery_once_more.testing.telling import Watch

#: kombu has no types
_Queue: Any
_Exchange: Any
_Queue, _Exchange = Queue, Exchange
#: seconds; how often a worker that says nothing is looked at
LOOK_S = 0.05
#: seconds after which RabbitMQ deletes a queue that a killed test has left
LEFT_S = 600
#: seconds that a killed process gets to be gone: the pool's children are nobody's to wait for
DEAD_S = 5.0
#: letters of a worker's log that an error shows
SHOWN = 2000


class PreforkWorker:
    """``with PreforkWorker(app, watch=…) as worker: worker.deliver(task, args)``.

    Args:
        watch: what watches a run, in the pool child.
        deadline_s: seconds that one delivery may take, and the worker to start.
        forget: drops connections that the test has, in the worker, before it forks its pool.

    Raises:
        ConfigurationError: the app's broker cannot be reached from another process, or nothing can be forked here.
    """

    def __init__(self, app: Celery, *, watch: Watch, deadline_s: float = 60.0,
                 forget: Callable[[], None] = lambda: None) -> None:  # fmt: skip
        _check(app)
        self.app = app
        self._watch, self._deadline_s, self._forget = watch, deadline_s, forget
        self._orders = Orders()
        self._life: _Life | None = None

    def __enter__(self) -> PreforkWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def deliver(self, task: Task, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *,
                arm: Any = None) -> Delivery:  # fmt: skip
        """Publish one message and wait until nothing of its call is under way any more.

        A call that is not over in time ends with its worker; the next one gets another worker.

        Args:
            arm: for the watcher of the first delivery, as JSON can say it: where it shall die.

        Raises:
            CrashTestError: the worker did not start, or the message was not published.
        """
        if task.name not in self.app.tasks:
            raise CrashTestError(f"task {task.name!r} is no task of the app {self.app.main!r}, whose worker shall run it")
        life = self._living()
        delivery = Delivery(task_id=str(uuid.uuid4()), queue=life.queue.name)
        self._orders.give(delivery.task_id, arm)
        until = time.monotonic() + self._deadline_s
        published = task.apply_async(tuple(args), dict(kwargs or {}), task_id=delivery.task_id, queue=life.queue)
        if getattr(published, "duplicate", False):
            raise CrashTestError(f"task {task.name!r}: nothing was published: another call, {published.id}, holds its lock")
        while not delivery.settled:
            for name, task_id, told in life.heard(until):
                if task_id == delivery.task_id:
                    delivery.read(name, told)
            if not delivery.settled and not life.lives():
                delivery.trouble = f"the worker ended with status {life.status}: {life.tail()}"
            elif not delivery.settled and time.monotonic() > until:
                delivery.trouble = f"not over after {self._deadline_s:g} s ({_stands(delivery)}): {life.tail()}"
        if delivery.trouble:
            self._end()
        return delivery

    def close(self) -> None:
        """End the worker, and delete its queue with what is in it."""
        self._end()
        self._orders.close()

    def _living(self) -> _Life:
        if self._life is not None and not self._life.lives():
            self._end()
        if self._life is None:
            _reach(self.app)
            self._life = _Life(self.app, self._orders, self._watch, self._forget)
            self._await_start(self._life)
        return self._life

    def _await_start(self, life: _Life) -> None:
        until = time.monotonic() + self._deadline_s
        while not any(name == "ready" for name, _, _ in life.heard(until)):
            late = time.monotonic() > until
            if late or not life.lives():
                what = f"did not start in {self._deadline_s:g} s" if late else f"ended at its start with status {life.status}"
                tail = life.tail()
                self._end()
                raise CrashTestError(f"the worker of app {self.app.main!r} {what}: {tail}")

    def _end(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.end()
            _delete(self.app, life.queue)


class _Life:
    """One worker, from its fork until it is reaped."""

    def __init__(self, app: Celery, orders: Orders, watch: Watch, forget: Callable[[], None]) -> None:
        app.finalize()
        name = f"once-more-{uuid.uuid4().hex}"
        self.queue: Any = _Queue(name, _Exchange(""), routing_key=name, expires=LEFT_S)
        self.status: int | None = None
        self._buffer = b""
        log, path = tempfile.mkstemp(prefix=f"{name}-", suffix=".log")
        self._log = Path(path)
        self._reader, writer = os.pipe()
        leash, self._leash = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
            self.pid = os.fork()
        if self.pid == 0:
            os.close(self._reader)
            os.close(self._leash)
            live(Birth(app=app, queue=self.queue, orders=orders, watch=watch, forget=forget, writer=writer, leash=leash, log=log))
        for descriptor in (writer, leash, log):
            os.close(descriptor)

    def heard(self, until: float) -> list[tuple[str, str, Any]]:
        """What was told since the last look; waits a moment where nothing was."""
        wait_s = max(min(LOOK_S, until - time.monotonic()), 0)
        if not select.select([self._reader], [], [], wait_s)[0]:
            return []
        data = os.read(self._reader, 1 << 16)
        if not data:  # nobody can tell anything any more: it is about to end
            time.sleep(wait_s)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [(name, task_id, told) for name, task_id, told in map(json.loads, lines)]

    def lives(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is None

    def lives_on(self) -> bool:
        """Whether any process of it can still tell something; waits a moment for what it tells."""
        return not select.select([self._reader], [], [], LOOK_S)[0] or bool(os.read(self._reader, 1 << 16))

    def end(self) -> None:
        """With its whole group, at once: of a call that is settled nothing is left to do."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)  # it may not have had a group of its own yet
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        until = time.monotonic() + DEAD_S
        while self.lives_on() and time.monotonic() < until:
            pass
        for descriptor in (self._reader, self._leash):
            os.close(descriptor)
        self._log.unlink()

    def tail(self) -> str:
        said = self._log.read_text(errors="replace").strip()
        return f"its log ends with\n{said[-SHOWN:]}" if said else "it said nothing"


def _check(app: Celery) -> None:
    if not hasattr(os, "fork"):
        raise ConfigurationError('die="worker" forks a worker, and this system cannot: die="raise" runs everywhere')
    if app.conf.task_always_eager:
        raise ConfigurationError('die="worker" publishes to a real worker: turn task_always_eager off for this test')
    for setting, connection in (("write", app.connection_for_write()), ("read", app.connection_for_read())):
        if connection.transport.driver_type == "memory":
            raise ConfigurationError(f"broker_{setting}_url is {connection.as_uri()}, which no other process reaches: "
                                     'die="worker" needs a real broker, such as redis:// or amqp://')  # fmt: skip


def _reach(app: Celery) -> None:
    with app.connection_for_write() as connection:
        try:
            connection.ensure_connection(max_retries=1, timeout=10)
        except (OperationalError, *connection.connection_errors) as exc:
            raise CrashTestError(f'die="worker": the broker {connection.as_uri()} does not answer: {exc}') from exc


def _delete(app: Celery, queue: Any) -> None:
    connection = app.connection_for_write()
    try:
        connection.ensure_connection(max_retries=1, timeout=5)
        queue(connection.default_channel).delete()
        if connection.transport.driver_type == "redis":
            connection.default_channel.client.delete(*(f"{queue.name}.{key}" for key in UNACKED))
    except (OperationalError, *connection.connection_errors, *connection.channel_errors):
        pass  # a broker that is gone has nothing left to delete
    finally:
        connection.release()


def _stands(delivery: Delivery) -> str:
    if not delivery.runs:
        return "no run started"
    last = delivery.runs[-1]
    if last.state is None and last.fate is None:
        return f"run {len(delivery.runs)} did not end"
    return f"after {len(delivery.runs)} runs a message of it is still under way"
