"""The app under test, as a user would write it: real tasks for real workers. Databases: 0 broker, 1 results, 2 locks, 3 witness.

``SHOP_REDIS`` is the server's URL without a database; ``SHOP_CONF`` is JSON with more settings.
"""

import json
import os
import signal
import sys
import time

from celery import Celery, Task
from celery.exceptions import Ignore, Reject
from support.witness import Witness

from celery_once_more import UniqueTask, current_lock

REDIS = os.environ["SHOP_REDIS"]
witness = Witness(f"{REDIS}/3")

app = Celery("shop", broker=f"{REDIS}/0", backend=f"{REDIS}/1")
app.conf.update(
    once_more_redis_url=f"{REDIS}/2",
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 3600},
    result_expires=600,
)
app.conf.update(json.loads(os.environ.get("SHOP_CONF", "{}")))

UNIQUE = {"base": UniqueTask, "lock": "until_executed"}
LATE = {"acks_late": True, "reject_on_worker_lost": True}


def _work(self, key, seconds):
    """Sleep in small steps, so that a signal that raises in Python is met soon."""
    with witness.run(key, task_id=self.request.id, retries=self.request.retries, token=current_lock.fencing_token):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.02)
        return key


@app.task(bind=True, lock_args=["key"], **UNIQUE)
def early(self, key, seconds=0.0, payload=None):
    return _work(self, key, seconds)


@app.task(bind=True, lock_args=["key"], **UNIQUE, **LATE)
def late(self, key, seconds=0.0, payload=None):
    return _work(self, key, seconds)


@app.task(bind=True, base=Task, **LATE)
def plain_late(self, key, seconds=0.0):
    return _work(self, key, seconds)


@app.task(bind=True, lock_args=["key"], **UNIQUE)
def ends_by(self, key, how):
    return _end(self, key, how)


@app.task(bind=True, lock_args=["key"], **UNIQUE, **LATE)
def ends_late_by(self, key, how):
    return _end(self, key, how)


def _end(self, key, how):
    """Run once by ``how``, and plainly every further time."""
    first = witness.redis.incr(f"ends:{key}") == 1
    with witness.run(key, how=how, task_id=self.request.id):
        if not first:
            return key
        if how == "exception":
            raise ValueError(key)
        if how == "ignore":
            raise Ignore
        if how == "reject":
            raise Reject(key, requeue=False)
        if how == "requeue":
            raise Reject(key, requeue=True)
        if how == "exit":
            sys.exit(1)
        if how == "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        return key
