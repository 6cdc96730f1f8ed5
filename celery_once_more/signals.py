"""The package's own signals. Receivers are called as Celery calls its own: an error in one is logged and stops nothing.

The sender is the task's name. Every signal carries ``task_id`` and ``digest``; the rest stands beside each.
"""

from __future__ import annotations

from celery.utils.dispatch import Signal

__all__ = [
    "lock_acquired",
    "lock_conflict",
    "lock_lost",
    "lock_reaped",
    "lock_released",
    "store_unavailable",
    "task_redelivered",
    "task_rescheduled",
]

#: ``phase`` ("waiting" or "running"), ``token`` (None while waiting)
lock_acquired = Signal(name="lock_acquired")
#: ``reason`` ("finished", "publish failed", "revoked", "worker lost", …)
lock_released = Signal(name="lock_released")
#: ``holder`` (task id), ``phase`` of the holder, ``side`` ("client" or "server"), ``decision``
lock_conflict = Signal(name="lock_conflict")
#: ``reason``: the run goes on, or has just ended, without its lock
lock_lost = Signal(name="lock_lost")
#: ``phase``: the lapsed holder ``task_id`` was freed by somebody else than its own run
lock_reaped = Signal(name="lock_reaped")
#: ``decision``: one more delivery of a message whose run lives ("put off") or is over ("ended")
task_redelivered = Signal(name="task_redelivered")
#: ``side`` ("client" or "server"), ``countdown`` (seconds), ``tries`` (1, 2, …): a duplicate asks for its lock again later
task_rescheduled = Signal(name="task_rescheduled")
#: ``act``, ``error``: the lock store did not answer
store_unavailable = Signal(name="store_unavailable")
