"""A task with three places to die at, for workers that are forked from a test, and the watcher that tells of each."""

import os
from contextlib import contextmanager

from celery_once_more import crash

LATE = {"acks_late": True, "reject_on_worker_lost": True}
#: what the watcher tells of a run that comes to its end
ALL = ["at one", "at two", "at three"]


class Numbered:
    """Tells each place that the run reaches, and dies at the one whose number it was armed with."""

    def __init__(self, run):
        self.run, self.reached = run, 0

    def reach(self, when, kind, what, *, key):
        self.reached += 1
        self.run.tell(f"{when} {what}")
        if self.reached == self.run.arm:
            self.run.die()

    def ahead_s(self):
        return 0.0


@contextmanager
def watch(run):
    yield Numbered(run)


def three_steps(self, *args):
    for name in ("one", "two", "three"):
        crash.crash_point(name)
    return os.getpid()


def steps(app, **options):
    return app.task(bind=True, name="app.steps", shared=False, lazy=False, **options)(three_steps)


def told(delivery):
    return [run.told for run in delivery.runs]
