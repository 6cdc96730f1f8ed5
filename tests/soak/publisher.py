"""A publisher that is killed between taking its lock and sending its message: ``python -m soak.publisher <task> <key> <id>``."""

import os
import signal
import sys

from celery.signals import before_task_publish

from soak.tasks import TASKS

#: seconds that its lock would wait for the message: longer than any soak, so that only the proof that it is gone frees it
LONG = 24 * 3600


def main(task, key, task_id):
    before_task_publish.connect(lambda **_: os.kill(os.getpid(), signal.SIGKILL), weak=False)
    TASKS[int(task)].apply_async((int(key), 0, "succeed"), task_id=task_id, lock_queue_lease=LONG)


if __name__ == "__main__":
    main(*sys.argv[1:])
