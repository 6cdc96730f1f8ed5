"""Plain tasks, one for each row of the table of redelivery: the first run of a message dies, as its test says."""

import itertools
import os
import signal
import time

from celery import Celery, Task
from celery.worker.request import Request
from support.ends import CELERY_57
from support.waiting import eventually
from support.witness import Witness

REDIS = os.environ["SHOP_REDIS"]
witness = Witness(f"{REDIS}/3")
app = Celery("shop_fates", broker=f"{REDIS}/0", backend=f"{REDIS}/1", set_as_current=False)
app.conf.update(
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 3600, "unacked_restore_interval": 1, "unacked_restore_throttle": 1},
    worker_enable_remote_control=False,
)

ACK = "acks_on_failure" if CELERY_57 else "acks_on_failure_or_timeout"
ON_AND_OFF = (True, False)
#: Celery 5.6 does not know the first, and shall not act on it
RETRY = {
    "no retry": {"retry_on_worker_lost": False},
    "retry": {"retry_on_worker_lost": True, "max_retries": 1},
    "retry without end": {"retry_on_worker_lost": True, "max_retries": None},
}


class Accepted(Request):
    """Says when the main process knows that a child runs the message: until then it would hand it to another child."""

    def on_accepted(self, pid, time_accepted):
        super().on_accepted(pid, time_accepted)
        witness.redis.set(f"accepted:{self.id}:{self._context.retries}", pid)


def _die(task, how):
    """In the first run of a message alone: its child at once, or with its worker as soon as the test kills that."""
    number = witness.redis.incr(f"runs:{task.request.id}")
    redelivered, retries = bool(task.request.delivery_info["redelivered"]), task.request.retries
    witness.say("start", task.request.id, number=number, redelivered=redelivered, retries=retries)
    if number > 1:
        return
    if how == "child":
        eventually(lambda: witness.redis.get(f"accepted:{task.request.id}:{retries}") == str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(120)
    raise AssertionError("nobody killed the worker")


def _task(late, reject, ack, retry):
    name = f"{late=} {reject=} {ack=} {retry}"
    options = {"acks_late": late, "reject_on_worker_lost": reject, ACK: ack, "default_retry_delay": 0, **RETRY[retry]}
    return app.task(bind=True, base=Task, Request=Accepted, name=name, shared=False, lazy=False, **options)(_body())


def _body():
    def body(self, how):
        _die(self, how)

    return body


TASKS = {row: _task(*row) for row in itertools.product(ON_AND_OFF, ON_AND_OFF, ON_AND_OFF, RETRY)}


@app.task(base=Task, shared=False, lazy=False)
def last():
    return "last"
