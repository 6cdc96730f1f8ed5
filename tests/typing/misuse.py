"""What a type checker must refuse. Checked by ``test_public_api.py``; each marked line must be an error of that code."""

from celery_once_more import LockConflict, UniqueTask, current_lock
from celery_once_more.reaper import ReapReport


class Ship(UniqueTask):
    lock = 5  # error: assignment
    on_conflict = ["log"]  # error: assignment
    on_outage = True  # error: assignment


def use(error: LockConflict, report: ReapReport) -> None:
    error.holder.missing  # noqa: B018  # error: attr-defined
    error.holder = "x"  # error: misc
    current_lock.missing  # noqa: B018  # error: attr-defined
    current_lock.fencing_token + 1  # error: operator
    current_lock.check("x")  # error: call-arg
    report.lapsed = 5  # error: misc
