"""``current_lock``: the lock of the task that runs here, as ``celery.current_task`` is the task."""

from __future__ import annotations

from celery import current_task

from celery_once_more import report
from celery_once_more.exceptions import LockLost
from celery_once_more.locks import Held
from celery_once_more.run import Run, run_of
from celery_once_more.runtime import runtime

#: how a message stands -> why its run does not hold its lock
_WHY = {
    "freed": "it was freed before the end of its run",
    "running": "another run holds it",
    "waiting": "it went on to a later message",
}


class CurrentLock:
    """A proxy. In a task without a lock, in eager mode and outside of tasks it is null: no digest, no token, nothing to lose."""

    @property
    def digest(self) -> str | None:
        """22 characters that name the lock, or ``None``."""
        run = self._run()
        return run.ticket.digest if run else None

    @property
    def fencing_token(self) -> int | None:
        """Grows with every run of this digest; a store that refuses smaller ones refuses a run that was outlived.

        See Kleppmann, "How to do distributed locking" (2016).
        """
        run = self._run()
        return run.answer.token if run and run.answer else None

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends unless it is renewed; 0 where nothing is held.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        state, remaining_ms, _ = self._look()
        return remaining_ms / 1000 if state == "mine" else 0.0

    def check(self) -> None:
        """Ask the store whether this run still holds its lock, without a gap since it started.

        Raises:
            LockLost: it does not: the lease lapsed, the store was flushed, or another run holds it.
            StoreUnavailable: the store did not answer.
        """
        run = self._run()
        if run is None or run.answer is None:
            return
        state, _, token = self._look()
        if state != "mine":
            why = _WHY.get(state, "it lapsed")
            raise LockLost(run.ticket.task, run.ticket.digest, why)
        if token != run.answer.token:
            raise LockLost(run.ticket.task, run.ticket.digest, "it was gone for a while, and was taken again")

    def release(self) -> bool:
        """Free the lock before the run has ended: from now on this run refuses nobody. A redelivered copy of its message still
        does not run beside it.

        Returns:
            Whether this run held it.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        run = self._run()
        if run is None:
            return False
        ticket, token = run.ticket, self.fencing_token or 0
        held = Held(digest=ticket.digest, series=ticket.series, task_id=ticket.task_id, phase="running", run=run.run_id,
                    hop=ticket.hop, since=0, token=token)  # fmt: skip
        freed = runtime(current_task.app).store.free(held)
        if freed:
            report.released(ticket, "by its run")
        return freed

    def __bool__(self) -> bool:
        return self._run() is not None

    def __repr__(self) -> str:
        run = self._run()
        return f"<current_lock: {run.ticket.digest} of {run.ticket.task}>" if run else "<current_lock: none>"

    def _run(self) -> Run | None:
        run = run_of(current_task.request) if current_task else None
        return run if run is not None and run.holds else None

    def _look(self) -> tuple[str, int, int]:
        run = self._run()
        if run is None:
            return "none", 0, 0
        return runtime(current_task.app).store.look(run.ticket, run=run.run_id)


current_lock = CurrentLock()
