"""How a run ends by what its own body does."""

import os
import sys
import time

from celery.exceptions import Ignore, Reject


def goes_on(task):
    pass


def fails(task):
    raise ValueError("as it was told")


def os_exit(task):
    os._exit(1)


def sys_exit(task):
    sys.exit(1)


def memory_error(task):
    raise MemoryError("as it was told")


def ignore(task):
    raise Ignore


def reject(task):
    raise Reject("as it was told", requeue=False)


def requeue(task):
    raise Reject("as it was told", requeue=True)


def hang(task):
    while True:
        time.sleep(0.02)


def retry(task):
    raise task.retry(countdown=1)  # at once, and Celery may store RETRY over the result of the next run


def replace(task):
    raise task.replace(task.s(*task.request.args, **task.request.kwargs))


INSIDE = {
    "fails": fails,
    "os._exit": os_exit,
    "sys.exit": sys_exit,
    "MemoryError": memory_error,
    "Ignore": ignore,
    "Reject": reject,
    "Reject, requeue": requeue,
    "hang": hang,
}
#: what publishes the next run does so when the body is over
AFTERWARDS = {"retry": retry, "replace": replace}
