"""One keeper per worker, in its main process, renews the lease of everything that its pool is running.

A daemon thread, so that it depends on no event loop and no connection to the broker; it stops last, when the whole worker has
stopped. Each beat is one pipelined round trip. It also reaps a few buckets a beat, so that nothing depends on beat alone, and
says of which messages that nobody finds its worker knows.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from celery import bootsteps
from celery.worker import state
from celery.worker.request import Request

from celery_once_more import discarded, report
from celery_once_more.exceptions import OnceMoreError
from celery_once_more.locks import Renew
from celery_once_more.locks.keys import BUCKETS
from celery_once_more.reaper import reap
from celery_once_more.run import Run
from celery_once_more.runtime import milliseconds, runtime
from celery_once_more.ticket import new_run_id
from celery_once_more.unread import unread

logger = logging.getLogger(__name__)

#: held during a beat, and during a fork: what a thread holds when its process forks, such as the lock of a module that is
#: being imported, stays locked in the child for ever
_at_work = threading.Lock()
#: beats in one lease
BEATS = 3
#: seconds; how soon a keeper sees that something with a shorter lease runs
LOOK_AFTER = 0.25
#: buckets reaped by each beat
BUCKETS_A_BEAT = 16


@functools.cache
def _hold_back_forks() -> None:
    """Once per process, however many workers it embeds: the lock is one, and a fork takes it once."""
    os.register_at_fork(before=_at_work.acquire, after_in_parent=_at_work.release, after_in_child=_at_work.release)


class Keeper:
    def __init__(self, app: Any) -> None:
        self.app = app
        self._seen: set[str] = set()
        self._told: set[str] = set()
        self._buckets = itertools.cycle(range(BUCKETS))
        self._worker = new_run_id()
        self._consumer: Callable[[], Any] = lambda: None

    def check(self) -> None:
        """Let a wrong setting end the worker at its start, with a sentence, and not every task later.

        Raises:
            ConfigurationError: a setting is wrong, or no Redis is known.
        """
        rt = runtime(self.app)
        if self._locking():
            _ = rt.store
        _ = rt.settings

    def start(self, over: threading.Event, consumer: Callable[[], Any]) -> None:
        """Beat in a thread of its own until ``over`` is set; ``consumer``: the worker's, if it has one just then."""
        self._consumer = consumer
        threading.Thread(target=self._run, args=(over,), name="celery-once-more-keeper", daemon=True).start()

    def _run(self, over: threading.Event) -> None:
        beaten, interval_s = time.monotonic(), self._interval_s()
        while not over.wait(min(interval_s, LOOK_AFTER)):
            interval_s = self._interval_s()
            if time.monotonic() < beaten + interval_s:
                continue
            beaten = time.monotonic()
            try:
                with _at_work:
                    self.beat()
            except OnceMoreError as exc:
                logger.warning("leases are not renewed now, the next beat tries again: %s", exc)
            except Exception:
                logger.exception("leases are not renewed now, the next beat tries again")

    def _interval_s(self) -> float:
        """Seconds between two beats: of what runs, or may run, the shortest lease decides."""
        said = [task.once_more.lease for task in self._locking()] + [run.options.lease for run in active_runs()]
        return min(runtime(self.app).settings.lease, *(lease for lease in said if lease is not None), float("inf")) / BEATS

    def beat(self) -> None:
        """Renew once, then look after a few buckets.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        self.renew([*active_runs(), *list(runtime(self.app).lingering.values())])
        if self._locking():
            reap(self.app, buckets=list(itertools.islice(self._buckets, BUCKETS_A_BEAT)))
            if runtime(self.app).broker is not None:
                self.vouch()

    def vouch(self) -> None:
        """Say of which messages, looked for and not found, this worker knows: those that wait in its memory to be run; any of
        them, while it has not read what the broker answered."""
        suspects, lease_ms = runtime(self.app).store.suspects, milliseconds(runtime(self.app).settings.lease)
        asked = suspects.ask(self._worker, lease_ms=lease_ms)
        if asked.suspects:
            consumer = self._consumer()
            any_of_them = unread(consumer)  # asked first: what is read meanwhile is a request by then
            here = {request.id for request in (*_copy(state.requests.values), *held_back(consumer))}
            known = [w for w in asked.suspects if any_of_them or w.task_id in here]
            suspects.vouch(self._worker, asked, known, lease_ms=lease_ms)

    def renew(self, runs: list[Run]) -> None:
        """A run that is seen for the first time may not have been let in: only from the second on is its lock taken again
        where it is gone, and its loss told, once.
        """
        rt = runtime(self.app)
        known = {run.run_id for run in runs}
        self._told &= known
        answers = rt.store.renew([
            Renew(ticket=run.ticket, run=run.run_id, lease_ms=rt.lease_ms(run.options), retake=run.run_id in self._seen)
            for run in runs
        ])  # fmt: skip
        for run, answer in zip(runs, answers, strict=True):
            if answer.verdict in ("over", "lost"):
                rt.lingering.pop(run.run_id, None)
            if answer.verdict in ("lost", "retaken") and run.run_id in self._seen - self._told:
                self._told.add(run.run_id)
                again = "it was gone, and is taken again under a new token" if answer.verdict == "retaken" else None
                report.lost(run.ticket, again or "the run goes on without it")
            if answer.verdict == "unknown":
                logger.warning("task %s[%s]: the store refused to renew lock %s", run.ticket.task, run.ticket.task_id,
                               run.ticket.digest)  # fmt: skip
        self._seen = known

    def _locking(self) -> list[Any]:
        tasks = list(self.app.tasks.values())
        return [task for task in tasks if getattr(task, "once_more", None) and task.once_more.lock]


def active_runs() -> list[Run]:
    """What this worker's pool is running, as far as it asks for locks."""
    found = (getattr(request, "once_more_run", None) for request in _copy(lambda: state.active_requests))
    return [run for run in found if run is not None]


def _copy(requests: Callable[[], Iterable[Any]]) -> list[Any]:
    while True:
        try:
            return list(requests())
        except RuntimeError:  # they changed while they were copied
            continue


def held_back(consumer: Any) -> list[Any]:
    """Requests that wait in a worker's memory for their ETA (as ``inspect scheduled`` finds them), or for their rate limit."""
    if consumer is None:
        return []
    entries = [waiting.entry for waiting in _copy(lambda: consumer.timer.schedule.queue)]  # tuples, or greenlets that bear one
    timed = [entry.args[0] for entry in entries if entry.args]
    limited = [item[0] for bucket in _copy(consumer.task_buckets.values) if bucket for item in _copy(bucket.contents.__iter__)]
    return [request for request in (*timed, *limited) if isinstance(request, Request)]


class KeeperStep(bootsteps.StartStopStep):
    """Starts the keeper when the pool has forked; it ends with the whole worker: when a step stops, the pool still drains."""

    requires = ("celery.worker.components:Pool",)

    def start(self, parent: Any) -> None:
        runtime(parent.app).worker_pid = os.getpid()
        keeper = Keeper(parent.app)
        keeper.check()
        _hold_back_forks()
        if parent.consumer is not None:
            discarded.watch(parent.consumer)
        keeper.start(parent.blueprint.shutdown_complete, lambda: parent.consumer)
