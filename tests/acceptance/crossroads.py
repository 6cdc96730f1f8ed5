"""Tasks that are sent through exchanges of every kind, for ``celery -A crossroads``; a test builds its own publishers of them.

Databases as in ``shop``; ``SHOP_CONF`` is JSON with the queues, and with another broker. The default queue is read by nobody:
what goes astray stays there.
"""

import json
import os

from celery import Celery
from support.gates import Gates
from support.witness import Witness

from celery_once_more import UniqueTask, current_lock

REDIS = os.environ["SHOP_REDIS"]
LOCKS = f"{os.environ.get('SHOP_LOCKS', REDIS)}/2"
LATE = {"bind": True, "base": UniqueTask, "lock_args": ["key"], "acks_late": True, "shared": False}
witness = Witness(f"{REDIS}/3")
gates = Gates(witness.redis)


def build(**conf):
    """An app with the tasks."""
    app = stranger(**conf)
    app.task(name="crossroads.call", lock="until_executed", **LATE)(_gated)
    app.task(name="crossroads.anywhere", lock="until_executed", unique_across_queues=True, **LATE)(_gated)
    app.task(name="crossroads.one_at_a_time", lock="while_executing", reschedule_countdown=1, **LATE)(_gated)
    app.task(name="crossroads.counted", lock="until_executed", **LATE)(_counted)
    app.task(name="crossroads.counted_early", lock="until_executed", **{**LATE, "acks_late": False})(_counted)
    app.task(name="crossroads.again", lock="until_executed", **LATE)(_twice)
    app.finalize()
    return app


def stranger(**conf):
    """An app that knows the queues and none of the tasks."""
    app = Celery("crossroads", broker=f"{REDIS}/0", backend=f"{REDIS}/1", set_as_current=False)
    app.conf.update(once_more_redis_url=LOCKS, task_default_queue="astray", worker_prefetch_multiplier=1, result_expires=600)
    app.conf.update(conf)
    return app


def _gated(self, key):
    """Run until the test opens the gate of this run of the key."""
    _counted(self, key)
    return key


def _counted(self, key):
    """The same, and return the number of the run."""
    n = witness.redis.incr(f"runs:{key}")
    exchange = self.request.delivery_info["exchange"]
    with witness.run(key, n=n, task_id=self.request.id, exchange=exchange, token=current_lock.fencing_token):
        gates.wait(f"{key}:{n}")
        return n


def _twice(self, key):
    _gated(self, key)
    if self.request.retries == 0:
        raise self.retry(countdown=1)
    return key


app = build(**json.loads(os.environ.get("SHOP_CONF", "{}")))
