"""A shop whose payment provider announces each settled payment more than once.

Three tasks, one body: what differs is only whether the task is unique, and when its message is acknowledged.
"""

import os
import time

from celery import Celery
from ledger import Ledger

from celery_once_more import UniqueTask

REDIS = os.environ.get("SHOP_REDIS", "redis://localhost:6379/0")
#: what every Redis key of the shop begins with, those of its broker and those of its locks
PREFIX = os.environ.get("SHOP_PREFIX", "shop:")
#: seconds after which the lock of a dead worker is free; short, so that the demo is
LEASE = 4

ledger = Ledger(os.environ.get("SHOP_LEDGER", "ledger.sqlite"))

app = Celery("shop", broker=REDIS)
app.conf.update(
    once_more_lease=LEASE,
    once_more_key_prefix=f"{PREFIX}locks",
    broker_transport_options={
        "global_keyprefix": PREFIX,
        # a message that was not acknowledged for five seconds is delivered again
        "visibility_timeout": 5,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
    worker_prefetch_multiplier=1,
    beat_schedule={"reap-locks": {"task": "celery_once_more.reap", "schedule": 30.0}},
)


@app.task(base=UniqueTask, lock="until_executed", lock_args=["event"], bind=True, acks_late=True, reject_on_worker_lost=True)
def settle_payment(self, event, payload=None):
    settle("unique", event, self.request.id)


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
def settle_payment_plainly(self, event, payload=None):
    settle("plain", event, self.request.id)


@app.task(base=UniqueTask, lock="until_executed", lock_args=["event"], bind=True)
def settle_payment_at_most_once(self, event, payload=None):
    """Acknowledged when it begins, as is Celery's default: its message dies with its worker."""
    settle("early", event, self.request.id)


TASKS = {"unique": settle_payment, "plain": settle_payment_plainly, "early": settle_payment_at_most_once}


def settle(who, event, task_id):
    ledger.write(who, event, "begun", task_id)
    time.sleep(1.5)  # the bank takes its time
    ledger.write(who, event, "settled", task_id)
