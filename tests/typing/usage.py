"""The public API as a user types it. Checked by ``test_public_api.py``; ``# ->`` behind a ``reveal_type`` is what it must say."""

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from celery import Celery
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, scoped_session

import celery_once_more
import celery_once_more.django
import celery_once_more.sqlalchemy
from celery_once_more import (
    ArgumentsError,
    ConfigurationError,
    DuplicateDropped,
    LockConflict,
    LockInfo,
    LockLost,
    OnceMoreError,
    StoreUnavailable,
    UniqueResult,
    UniqueTask,
    current_lock,
    register_lock,
    signals,
)
from celery_once_more.reaper import ReapReport, reap
from celery_once_more.reservations import (
    ASSUME_DONE,
    CANNOT_SAY,
    NOT_DONE,
    REFUSE,
    REPEAT,
    AlreadyDone,
    Answer,
    Busy,
    Done,
    OutcomeUnknown,
    PreviouslyFailed,
    Reservation,
    Reservations,
    verify,
)

if TYPE_CHECKING:
    from typing_extensions import reveal_type

app = Celery("shop", broker="redis://localhost/0", backend="redis://localhost/1")
app.conf.once_more_lease = timedelta(seconds=30)
app.conf.beat_schedule = {"reap-locks": {"task": "celery_once_more.reap", "schedule": 30.0}}


@app.task(base=UniqueTask, lock="until_executed", lock_args=["event_id"], on_conflict={"client": "raise", "server": "log"})
def settle(event_id: str, payload: Mapping[str, Any] | None = None) -> str:
    return event_id


class Ship(UniqueTask):
    """A class-based task, and a project's own base."""

    name = "shop.ship"
    lock = "until_executed"
    lock_args = ("order_id",)
    on_conflict = "raise"
    on_outage = "proceed"

    def run(self, order_id: int, *, express: bool = False) -> int:
        current_lock.check()
        if current_lock:
            reveal_type(current_lock.digest)  # -> str | None
            reveal_type(current_lock.fencing_token)  # -> int | None
            reveal_type(current_lock.remaining)  # -> float
            reveal_type(current_lock.check())  # -> None
            reveal_type(current_lock.release())  # -> bool
        return order_id

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        super().before_start(task_id, args, kwargs)


register_lock("not_while_executing", refuse_publish=["running"])


class Report(UniqueTask):
    """Every option."""

    name = "shop.report"
    lock = "until_expired"
    lock_scope = "reports"
    unique_across_queues = True
    lock_ttl = timedelta(hours=1)
    lock_lease = 30
    lock_queue_lease = timedelta(days=2)
    lock_timeout = 1.5
    reschedule_countdown = 2
    strict_args = True


def look(task: UniqueTask) -> None:
    info: LockInfo | None = task.lock_info("evt_123", payload={})
    if info is not None:
        reveal_type(info.holder)  # -> str
        reveal_type(info.phase)  # -> str
        reveal_type(info.since)  # -> datetime.datetime
        reveal_type(info.remaining)  # -> float
        reveal_type(info.token)  # -> int | None
        reveal_type(task.release_lock(info))  # -> bool


ship = Ship()
reveal_type(UniqueTask.lock)  # -> str | None
reveal_type(UniqueTask.on_conflict)  # -> str | Mapping[str, str] | None
reveal_type(UniqueTask.on_outage)  # -> str | None


def publish() -> str | None:
    result: UniqueResult = settle.delay("evt_1", {"amount": 5})
    reveal_type(result.duplicate)  # -> bool
    if result.duplicate:
        return str(result.id)
    reveal_type(ship.AsyncResult("some id"))  # -> UniqueResult
    try:
        ship.apply_async((1,), {"express": True}, lock=None, on_conflict="log", countdown=5)
    except LockConflict as exc:
        reveal_type(exc.holder)  # -> str
        reveal_type(exc.digest)  # -> str
        reveal_type(exc.task)  # -> str
        return exc.holder
    except ArgumentsError as exc:
        reveal_type(exc.argument)  # -> str
        reveal_type(exc.task)  # -> str
    except (ConfigurationError, StoreUnavailable) as exc:
        reveal_type(str(exc))  # -> str
    except OnceMoreError:
        raise
    return None


@app.task(base=celery_once_more.django.UniqueTask, lock="until_executed")
def invoice(order_id: int) -> int:
    return order_id


class Bill(celery_once_more.sqlalchemy.UniqueTask):
    name = "shop.bill"
    lock = "until_executed"


def on_commit(session: Session, scoped: scoped_session[Session], asynchronous: AsyncSession) -> None:
    invoice.delay_on_commit(1)
    invoice.apply_async_on_commit((1,), using="other", countdown=5)
    Bill().delay_on_commit(session, 1)
    Bill().apply_async_on_commit(scoped, (1,), countdown=5)
    celery_once_more.sqlalchemy.delay_on_commit(scoped, settle, "evt_1")
    celery_once_more.sqlalchemy.apply_async_on_commit(asynchronous, settle, ("evt_1",), on_conflict="log")


def ask(reservation: Reservation) -> Done | Answer:
    return Done({"id": "ch_1"}) if reservation.takeovers > 1 else NOT_DONE if reservation.token else CANNOT_SAY


def charge(reservations: Reservations, session: Session) -> None:
    reveal_type(reservations.once(("order-lines", 42), tx=session))  # -> bool
    try:
        reservations.run(
            ("charge", 42),
            lambda r: r.headers(),
            on_unknown=REPEAT,
            repeat_within=timedelta(hours=24),
            max_takeovers=3,
            lease=60,
            fingerprint={"amount": 5},
            not_done=ConnectionError,
            final=(ValueError, KeyError),
            save=lambda tx, result: tx.add(result),
        )
        with reservations.reserve("mail", on_unknown=ASSUME_DONE) as reservation:
            reveal_type(reservation)  # -> Reservation
            reveal_type(reservation.dedup_key)  # -> str
            reveal_type(reservation.headers())  # -> dict[str, str]
            reservation.extend(30)
            reservation.result = {"sent": True}
    except Busy as exc:
        reveal_type(exc.retry_after)  # -> float
    except (AlreadyDone, OutcomeUnknown, PreviouslyFailed) as exc:
        reveal_type(exc.key)  # -> str
    reservations.run("x", str, on_unknown=verify(ask), lease=timedelta(minutes=1))
    reservations.run("x", str, on_unknown=REFUSE)
    for unknown in reservations.unknowns():
        reveal_type(unknown.since)  # -> datetime.datetime
        reservations.resolve(unknown.key, not_done=True)
    reveal_type(Reservations.django("other").once("x"))  # -> bool
    reveal_type(reservations.purge(older_than=timedelta(days=30), batch=100))  # -> int


def wait(result: UniqueResult) -> str | None:
    try:
        result.get(timeout=10)
    except DuplicateDropped as exc:
        reveal_type(exc.holder)  # -> str
        reveal_type(exc.digest)  # -> str
        return exc.holder
    except LockLost as exc:
        reveal_type(exc.task)  # -> str
        reveal_type(exc.digest)  # -> str
    return None


def count(report: ReapReport) -> int:
    reveal_type(report.lapsed)  # -> int
    reveal_type(report.orphaned)  # -> int
    reveal_type(report.kept)  # -> int
    reveal_type(report.unreadable)  # -> list[str]
    reveal_type(report.as_dict())  # -> dict[str, Any]
    for task, counts in report.tasks.items():
        reveal_type(task)  # -> str
        reveal_type(counts.lapsed)  # -> int
    return report.lapsed


reveal_type(reap(app))  # -> ReapReport
reveal_type(celery_once_more.__all__)  # -> list[str]


def on_conflict(sender: str, task_id: str, digest: str, **what: Any) -> None:
    pass


for signal in (
    signals.lock_acquired,
    signals.lock_conflict,
    signals.lock_lost,
    signals.lock_reaped,
    signals.lock_released,
    signals.store_unavailable,
    signals.task_redelivered,
    signals.task_rescheduled,
):
    signal.connect(on_conflict)
