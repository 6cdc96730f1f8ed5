"""What the processes of a forked worker tell the test: each run, from its start to its end, or to the end of its process.

Celery's own signals and request classes say it all; a line of JSON goes through a pipe for each.
"""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NoReturn

from celery import Celery, signals, states
from celery.exceptions import Reject
from celery.utils.imports import symbol_by_name

from celery_once_more import crash
from celery_once_more.testing.deliveries import Orders

#: seconds that a child waits for its main process to know of it, before it dies
ACCEPTED_S = 15.0
#: seconds between two looks at the pool: Celery's are 5 apart, and a child that is not quite dead at one waits for the next
MAINTAIN_S = 0.1


class PoolRun:
    """One run in the pool child, as its watcher sees it."""

    def __init__(self, teller: Teller, *, first: bool) -> None:
        #: it is the first delivery: the one that may die
        self.first = first
        #: what the test ordered for the first delivery; ``None`` in every other one
        self.arm: Any = teller.orders.arm if first else None
        self._teller = teller

    def tell(self, told: Any) -> None:
        """Tell the test something that JSON can say."""
        self._teller.tell("told", self._teller.orders.task_id, told)

    def die(self) -> NoReturn:
        """Die here and now; not before the main process knows of the run: until then it would give it to another child."""
        until = time.monotonic() + ACCEPTED_S
        while self._teller.orders.accepted_from() != os.getpid() and time.monotonic() < until:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still alive")


#: what watches a run: entered before it starts, left when it is over
Watch = Callable[[PoolRun], AbstractContextManager[crash.Watcher]]


class Teller:
    """Signals and requests of the worker's processes, told to the test: a line each."""

    def __init__(self, app: Celery, orders: Orders, watch: Watch, writer: int) -> None:
        self.orders = orders
        self._app, self._watch, self._writer = app, watch, writer
        self._main = os.getpid()
        self._watched = ExitStack()

    def listen(self) -> None:
        """Before the worker starts; its pool's children inherit it."""
        signals.celeryd_after_setup.connect(self._set_up, weak=False)
        signals.worker_ready.connect(self._ready, weak=False)
        signals.task_prerun.connect(self._before, weak=False)
        signals.task_postrun.connect(self._after, weak=False)
        signals.before_task_publish.connect(self._hurry, weak=False)
        signals.after_task_publish.connect(self._sent, weak=False)

    def tell(self, name: str, task_id: str = "", told: Any = None) -> None:
        line = json.dumps([name, task_id, told]).encode() + b"\n"
        while line:
            line = line[os.write(self._writer, line) :]

    def _set_up(self, **_: Any) -> None:
        for task in self._app.tasks.values():
            task.Request = _telling(symbol_by_name(task.Request), self)

    def _ready(self, sender: Any, **_: Any) -> None:
        if sender.hub is not None:
            sender.hub.call_repeatedly(MAINTAIN_S, sender.pool.maintain_pool)
        self.tell("ready")

    def _before(self, task_id: str, task: Any, **_: Any) -> None:
        if task_id != self.orders.task_id:
            return
        redelivered = bool((task.request.delivery_info or {}).get("redelivered"))
        start = {"redelivered": redelivered, "retries": task.request.retries, "pid": os.getpid()}
        self.tell("start", task_id, start)
        with self._trouble(task_id):
            watched = self._watch(PoolRun(self, first=self.orders.started() == 1))
            crash.watcher = self._watched.enter_context(watched)

    def _after(self, task_id: str, task: Any, retval: Any = None, state: str | None = None, **_: Any) -> None:
        if task_id != self.orders.task_id:
            return
        crash.watcher = None
        with self._trouble(task_id):
            self._watched.close()
        if state is not None:  # else it is cut short, and the main process has the last word
            requeued = isinstance(retval, Reject) and bool(retval.requeue) and bool(task.acks_late)
            error = f"{type(retval).__name__}: {retval}" if isinstance(retval, BaseException) and state != states.SUCCESS else ""
            self.tell("end", task_id, {"state": state, "error": error, "requeued": requeued})

    def _hurry(self, headers: Any = None, **_: Any) -> None:
        """No test waits for a retry."""
        if headers and headers.get("id") == self.orders.task_id and headers.get("retries"):
            headers["eta"] = None

    def _sent(self, headers: Any = None, **_: Any) -> None:
        if headers and headers.get("id") == self.orders.task_id:
            self.tell("sent", self.orders.task_id, {"by": "main" if os.getpid() == self._main else "child"})

    def _trouble(self, task_id: str) -> AbstractContextManager[None]:
        return _Trouble(lambda: self.tell("trouble", task_id, f"the watcher failed: {traceback.format_exc()}"))


class _Trouble(AbstractContextManager[None]):
    """Celery swallows what a receiver of a signal raises."""

    def __init__(self, say: Callable[[], None]) -> None:
        self._say = say

    def __exit__(self, kind: Any, *_: object) -> bool:
        if kind is not None:
            self._say()
        return kind is not None


def _telling(base: Any, teller: Teller) -> Any:
    """A task's own request, which tells how its main process ends a run that told of no end itself."""

    class Telling(base):
        _requeued = False

        def on_accepted(self, pid: int, time_accepted: float) -> None:
            super().on_accepted(pid, time_accepted)
            if self.id == teller.orders.task_id:
                teller.orders.note_accepted(pid)

        def reject(self, requeue: bool = False) -> None:
            self._requeued = self._requeued or (requeue and not self.acknowledged)
            super().reject(requeue)

        def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
            if return_ok:
                return super().on_failure(exc_info, send_failed_event, return_ok)
            failed: list[Any] = []
            signals.task_failure.connect(lambda **_: failed.append(1), weak=False, dispatch_uid="celery-once-more")
            try:
                return super().on_failure(exc_info, send_failed_event, return_ok)
            except BaseException:
                failed.append(1)  # Celery 5.6 cannot store every end
                raise
            finally:
                signals.task_failure.disconnect(dispatch_uid="celery-once-more")
                error = getattr(exc_info.exception, "exc", exc_info.exception)
                told = {"requeued": self._requeued, "failed": bool(failed), "error": f"{type(error).__name__}: {error}"}
                teller.tell("cut", self.id, told)

    return Telling
