"""Waiting holders whose message is gone, made as it happens: the lock was taken, and nothing was sent, or it was purged."""

from celery_once_more.reaper import reap
from celery_once_more.run import fresh_ticket
from celery_once_more.runtime import runtime
from celery_once_more.ticket import new_series
from support import held
from support.waiting import eventually


def never_sent(task, *args, queue="celery", task_id="never sent"):
    """A publisher of this call died between taking its lock and sending its message."""
    rt = runtime(task.app)
    assert task.app.amqp.queues[queue]  # declared by the way, as a publish does
    ticket = fresh_ticket(task, task.once_more, args, {}, task_id=task_id, queue=queue, series=new_series())
    assert rt.store.acquire(ticket, wait_ms=24 * 3600 * 1000, place=rt.place(queue)).verdict == "admitted"
    return ticket


def passes_until_freed(task, *args):
    """Reap until this lock is free, which takes two looks; what else could be proved gone is freed by then as well."""
    freed = []

    def gone():
        freed.append(reap(task.app).orphaned)
        return held.free(task, *args)

    eventually(gone, what="a lock that is proved an orphan's")
    return sum(freed)


def purge(task):
    """As ``celery purge`` does."""
    with task.app.connection_for_write() as connection:
        for queue in task.app.amqp.queues.values():
            queue.bind(connection.default_channel).purge()
