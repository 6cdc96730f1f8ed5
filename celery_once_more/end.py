"""The end of a run, where it ran: ``task_postrun``, after the result, the callbacks and the chord part are stored.

It frees what this run holds and nothing else. Where the child dies before it, the main process does it (``worker.py``),
or the lease lapses.
"""

from __future__ import annotations

from typing import Any

from celery import Task, states
from celery.exceptions import Reject

from celery_once_more import report
from celery_once_more.exceptions import StoreUnavailable
from celery_once_more.run import Run, run_of
from celery_once_more.runtime import runtime


def after_run(task: Task, state: str | None = None, retval: Any = None, **_: Any) -> None:
    """``task_postrun``: finish, or go back to waiting for the same message."""
    run = run_of(task.request)
    if run is None or run.left or not (run.holds or run.unlocked or run.waits):
        return
    goes_back = state == states.REJECTED and isinstance(retval, Reject) and retval.requeue and task.acks_late
    try:
        if run.waits:
            if not goes_back and state != states.RETRY and runtime(task.app).store.release(run.ticket):
                report.released(run.ticket, "refused at its start")  # for good: what it waited with is free for others
            return
        if run.next_hop is not None:
            if run.holds:
                _go_on_as_retry(task, run)
        elif goes_back:
            runtime(task.app).back_to_queue(run)
        elif state is None:
            _cut_short(task, run)
        elif state != states.RETRY:
            _finish(task, run, f"ended as {state}")
    except StoreUnavailable as exc:
        report.unavailable(run.ticket, "finish", exc, "its outcome stands, its lock lapses with its lease")


def _finish(task: Task, run: Run, reason: str) -> None:
    """Free the lock of a run that is over for good, and tell. A run without a lock frees the one that its message waited with."""
    store = runtime(task.app).store
    verdict = store.finish(run.ticket, run=run.run_id)
    if verdict == "lost" and run.unlocked:  # no keeper took the lock for it meanwhile: what waits is what its message waited with
        verdict = store.finish(run.ticket, run="")
    if verdict == "freed":
        report.released(run.ticket, reason)
    elif run.holds and verdict in ("gone", "lost"):
        why = "another run holds it; the end of this one changed nothing" if verdict == "lost" else "it was gone at the end"
        report.lost(run.ticket, why)


def _cut_short(task: Task, run: Run) -> None:
    """``sys.exit`` in the body, or somebody ends the run. In a pool child its main process decides what becomes of the lock;
    in a thread or greenlet there is nobody else: it stays for a message that the broker still has, unless that was revoked.
    """
    rt = runtime(task.app)
    if not rt.runs_in_main_process:
        return
    told = rt.lingering.pop(run.run_id, None)  # cancelled, after a lost connection or at a shutdown, is not revoked
    revoked = told is not None and told.revoked
    if task.acks_late and not revoked:
        rt.back_to_queue(run)
        told = rt.lingering.pop(run.run_id, None)
        if told is not None and told.revoked and rt.store.release(run.ticket):  # it was told meanwhile
            report.released(run.ticket, "revoked")
    elif rt.store.finish(run.ticket, run=run.run_id, only_this_message=True) == "freed":
        report.released(run.ticket, "revoked" if revoked else "cut short")


def _go_on_as_retry(task: Task, run: Run) -> None:
    """``retry(throw=False)``: the body is over now, and its next message, published meanwhile, may have the lock."""
    assert run.next_hop is not None
    rt = runtime(task.app)
    wait_ms = rt.queue_lease_ms(run.options)
    if rt.store.requeue(run.ticket, run=run.run_id, hop=run.next_hop, wait_ms=wait_ms):
        rt.store.confirm(run.ticket, hop=run.next_hop, wait_ms=wait_ms)
