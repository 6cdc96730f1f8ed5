"""The ends of a run that its pool child cannot tell of, as the worker's main process sees them.

The rule is "Celery redelivers: kept; else freed", and it is read from what Celery tells the broker (``acknowledge``,
``reject``), not from a copy of Celery's conditions. A run gets its id here, at receipt, so that main process, keeper and
child mean the same run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from celery.exceptions import TimeLimitExceeded
from celery.worker.request import Request

from celery_once_more import queues, report
from celery_once_more.exceptions import StoreUnavailable
from celery_once_more.locks import Answer, Renew
from celery_once_more.outgoing import Reentry, reentering
from celery_once_more.run import Run, message_ticket, options_of
from celery_once_more.runtime import Runtime, runtime
from celery_once_more.ticket import HEADER, RUN_HEADER, is_exempt, new_run_id

#: a child over its hard time limit is told to end, and killed 0.1 s later, after Celery has called us: its lock lapses then
DYING_MS = 1000


class UniqueRequest(Request):
    """Celery's request with the ends below; :func:`request_class` puts them before a task's own class as well."""

    #: the run that this request is to the lock store; ``None`` where it asks for no lock
    once_more_run: Run | None = None
    #: Celery is handling an end in which the child had no say
    _cut_short = False
    #: the child is over its hard time limit, and still alive
    _dying = False
    #: the message goes back to the broker
    _given_back = False
    #: a retry took the call over
    _moved_on = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.once_more_run = self._make_run()
        if self.once_more_run is not None:
            self._request_dict[RUN_HEADER] = self.once_more_run.run_id

    def on_timeout(self, soft: bool, timeout: float) -> None:
        if soft:
            super().on_timeout(soft, timeout)
            return
        self._dying = True
        with self._ending():
            super().on_timeout(soft, timeout)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        if return_ok:  # the child came to an end of its own, and has told the store itself
            return super().on_failure(exc_info, send_failed_event, return_ok)
        self._dying = isinstance(getattr(exc_info.exception, "exc", exc_info.exception), TimeLimitExceeded)
        with self._ending():
            return super().on_failure(exc_info, send_failed_event, return_ok)

    def reject(self, requeue: bool = False) -> None:
        if requeue and self._cut_short and not self.acknowledged:
            self._keep()  # before the broker hands it on: the next run shall find a lock that waits for it
        super().reject(requeue)

    def maybe_expire(self) -> Any:
        """A copy of a message that runs, or is done, does not expire: that would overwrite the result of its run."""
        if self.expires and self._stands() in ("running", "done"):
            return False
        return super().maybe_expire()

    def _retry_worker_lost(self, exc: BaseException, exc_info: Any) -> bool:
        run = self.once_more_run
        if run is not None and self._stands() == "waiting":  # the child died before it could ask: no run has the lock
            run = replace(run, run_id="")
        with reentering(Reentry("retry", self.id, run)):
            self._moved_on = bool(super()._retry_worker_lost(exc, exc_info))
        return self._moved_on

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        super()._announce_revoked(reason, terminated, signum, expired)
        if terminated:
            if self.once_more_run is not None:
                self.once_more_run.revoked = True
            self._linger()  # first: a greenlet that ends meanwhile finds it, or its lock waits already
            if self._stands() != "waiting":
                return
        with self._store("release", "its lock ends with its queue lease") as (run, rt):
            if run is not None and rt.store.release(run.ticket):
                report.released(run.ticket, reason)

    def _announce_cancelled(self, *args: Any, **kwargs: Any) -> None:
        super()._announce_cancelled(*args, **kwargs)
        self._linger()

    def _linger(self) -> None:
        """Celery counts the run as over; its child was sent a signal, and still lives: on_failure comes when it does not."""
        if self.once_more_run is not None:
            runtime(self._app).lingering[self.once_more_run.run_id] = self.once_more_run

    @contextmanager
    def _ending(self) -> Iterator[None]:
        self._cut_short = True
        try:
            yield
        finally:
            self._cut_short = False
            if self.once_more_run is not None:
                runtime(self._app).lingering.pop(self.once_more_run.run_id, None)
            self._settle()

    def _settle(self) -> None:
        """Free the lock, unless the message comes back or went on."""
        if self._given_back or self._moved_on:
            return
        if self._task.acks_late and not self.acknowledged:  # left to the broker, which hands it out again
            self._keep()
        elif self._dying:
            self._lapse_soon()
        else:
            self._free("worker lost")

    def _keep(self) -> None:
        self._given_back = True
        if self._dying:
            self._lapse_soon()
            waits = threading.Timer(DYING_MS / 2000, self._requeue)
            waits.daemon = True
            waits.start()
        else:
            self._requeue()

    def _requeue(self) -> None:
        """The lock waits for the next delivery."""
        with self._store("requeue", "the next delivery waits for its lease to lapse") as (run, rt):
            if run is not None:
                rt.back_to_queue(run)

    def _free(self, reason: str) -> None:
        """Free what the run held, or what its message waited with where the child died before it could ask."""
        with self._store("finish", "its lock lapses with its lease") as (run, rt):
            if run is None:
                return
            verdict = rt.store.finish(run.ticket, run=run.run_id, only_this_message=True)
            if verdict == "freed" or (verdict == "lost" and rt.store.release(run.ticket)):
                report.released(run.ticket, reason)

    def _lapse_soon(self) -> None:
        with self._store("renew", "its lock lapses with its lease") as (run, rt):
            if run is None:
                return
            (answer,) = rt.store.renew([Renew(ticket=run.ticket, run=run.run_id, lease_ms=DYING_MS)])
            if answer.verdict == "over" and not self._given_back:  # it never started: what waits is this very message
                rt.store.release(run.ticket)

    def _stands(self) -> str:
        """How this message stands at the store; ``none`` where nobody knows."""
        with self._store("look", "it counts as one that does not run") as (run, rt):
            return rt.store.look(run.ticket, run=run.run_id)[0] if run is not None else "none"
        return "none"

    @contextmanager
    def _store(self, act: str, otherwise: str) -> Iterator[tuple[Run | None, Runtime]]:
        """The store never breaks the main process: what it cannot do is said, and the lease does it."""
        try:
            yield self.once_more_run, runtime(self._app)
        except StoreUnavailable as exc:
            if self.once_more_run is not None:
                report.unavailable(self.once_more_run.ticket, act, exc, otherwise)

    def _make_run(self) -> Run | None:
        header, options = self._request_dict.get(HEADER), getattr(self._task, "once_more", None)
        if options is None or is_exempt(header) or (header is None and options.lock is None):
            return None
        delivery = self._delivery_info
        queue = queues.delivered_from(self._app, delivery["exchange"], delivery["routing_key"])
        try:
            ticket = message_ticket(self._task, options, self._request_dict, self._args, self._kwargs, queue)
            if ticket is None:
                return None
            _ = runtime(self._app).store
        except Exception:
            return None  # the child says it once more, where it can be seen
        options = options_of(self._task, ticket)
        return Run(ticket, options, new_run_id(), bool(delivery["redelivered"]), answer=Answer(verdict="run"))


def request_class(base: type[Request]) -> type[Request]:
    """``base`` with the ends above; itself where it has them."""
    if issubclass(base, UniqueRequest):
        return base
    return type(base.__name__, (UniqueRequest, base), {"__module__": base.__module__})
