"""Signals to a worker's processes."""

import os
import signal

from support.waiting import eventually


def kill_child(cell):
    os.kill(cell.pid, signal.SIGKILL)


def kill_main(cell):
    cell.worker.kill("SIGKILL")
    cell.worker.process.wait()
    cell.new_worker()


def kill_group(cell):
    cell.worker.kill_group()
    cell.new_worker()


def shut_down_warm(cell):
    """A warm shutdown, which waits for the run."""
    cell.worker.kill("SIGTERM")
    eventually(lambda: "Warm shutdown" in cell.worker.logs(), what="the shutdown")
    cell.ended()
    cell.gone()


def shut_down_cold(cell):
    """A cold shutdown, or a soft one whose time runs out. It waits for nobody, except for what cannot be ended."""
    cell.worker.kill("SIGQUIT")
    if cell.floor.pool == "threads":
        eventually(lambda: "does not implement kill_job" in cell.worker.logs(), what="the shutdown")
        cell.ended()
    _gone(cell)


def _gone(cell):
    try:
        cell.gone(patience=15)
    except AssertionError:  # where the signal came in the middle of a frame, Celery waits for RabbitMQ's answer for ever
        cell.worker.kill_group()  # as whoever runs it does then
        cell.new_worker()


def shut_down_softly(cell):
    """A soft shutdown, in whose time the run ends."""
    cell.worker.kill("SIGQUIT")
    eventually(lambda: "Soft Shutdown" in cell.worker.logs(), what="the shutdown")
    cell.ended()
    _gone(cell)


def freeze(cell):
    """Stand still for longer than the lease, until another run has the lock: of its own message, where the broker hands that out
    again, else of the next call. The frozen run, when it goes on, is told, and its late write is refused.
    """
    frozen, book = cell.worker, cell.book
    cell.fill_prefetch()  # or it would take the next message out of the broker in its sleep
    frozen.signal_group("SIGSTOP")
    cell.add_worker()
    if cell.expect.runs == 2:
        own = (cell.first, 2)
    else:
        own = (
            eventually(lambda: (call := cell.publish(gated=1)) and not call.duplicate and call, within=30, what="a call let in"),
            1,
        )
        cell.twins.append(own[0])
    cell.running(*own)
    frozen.signal_group("SIGCONT")
    cell.ended()
    one, two = book.runs(key=cell.key)
    assert one["token"] < two["token"], "a fencing token that does not grow"
    assert one["lost"], "check() told nothing"
    assert book.refused(cell.key) == [one["number"]], "a late write was let in"
    eventually(lambda: f"{cell.first.id}] raised" in frozen.logs(), what="the failure of the frozen run")
    cell.open(*own)
    eventually(lambda: book.runs(key=cell.key)[1]["how"] == "done", what="the end of the other run")
