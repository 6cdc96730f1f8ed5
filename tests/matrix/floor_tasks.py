"""The tasks of the matrix: one for each column, and one for each that only a publisher knows."""

from celery import Celery
from celery.concurrency.asynpool import AsynPool

from celery_once_more import LockLost, StoreUnavailable, UniqueTask, current_lock
from matrix import bodies
from matrix.columns import ACKS, COLUMNS

#: seconds after which a rescheduled message asks again
SOON = 0.2
#: how often a pool looks for lost children; 5 s in Celery
LOOK = 0.5


def build(book, *, strangers=False, **conf):
    """An app with the tasks; with ``strangers`` also those that no worker knows."""
    app = Celery("floor", set_as_current=False)
    app.conf.update(result_expires=600, worker_prefetch_multiplier=1, broker_connection_retry_on_startup=True)
    app.conf.update(conf)
    body = _body(book)
    for column in COLUMNS:
        for name in ("known", "unknown") if strangers else ("known",):
            options = {"reschedule_countdown": SOON} if column.at_start else {}
            app.task(name=task_name(column, name), bind=True, base=UniqueTask, lock=column.lock, lock_args=["key"], shared=False,
                     unique_across_queues=True, **ACKS[column.ack], **options)(body)  # fmt: skip
    app.finalize()
    AsynPool.timers = property(lambda pool: {pool.maintain_pool: LOOK})
    return app


def task_name(column, name="known"):
    return f"floor.{name}.{column.lock}.{column.ack}"


def _body(book):
    def run(self, key, how="success", gated=0):
        """Run ``nth`` of a task id waits at its gate if ``nth <= gated``; the first one ends as it is told, the others succeed.

        As a careful task does, each asks whether it still has its lock before it does what cannot be undone.
        """
        token, left = current_lock.fencing_token or 0, "cut short"
        number, nth = book.enter(key, self.request.id, token)
        try:
            if nth <= gated:
                book.wait(f"{self.request.id}:{nth}")
            if nth == 1:
                bodies.INSIDE.get(how, bodies.goes_on)(self)
            try:
                current_lock.check()
            except LockLost as exc:
                book.say_lost(key, number, str(exc))
                book.write(key, number, token)
                raise
            except StoreUnavailable:
                pass  # nobody knows; its fencing token does
            book.write(key, number, token)
            left = "done"
        finally:
            book.leave(key, number, left)
        if nth == 1:  # from here on its next run may start
            bodies.AFTERWARDS.get(how, bodies.goes_on)(self)
        return number

    return run
