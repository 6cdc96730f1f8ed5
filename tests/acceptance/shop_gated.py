"""More of the shop: tasks that stop at a gate until their test opens it, for ``celery -A shop_gated``."""

from celery import Task
from shop import LATE, UNIQUE, _work, app, early, late, plain_late, witness
from support import shop_hooks
from support.gates import Gates

from celery_once_more import LockConflict, LockLost, StoreUnavailable, UniqueTask, current_lock

__all__ = ["app", "early", "late", "plain_late"]  # a test gets by with this module alone
gates = Gates(witness.redis)


def _gated(self, key, **more):
    """Run until the test opens ``key:n``, n = 1 for the first run of this key."""
    n = witness.redis.incr(f"runs:{key}")
    more |= {"n": n, "task_id": self.request.id, "retries": self.request.retries, "token": current_lock.fencing_token}
    with witness.run(key, **more):
        gates.wait(f"{key}:{n}")
        try:
            current_lock.check()
            lost = False
        except LockLost:
            lost = True
        except StoreUnavailable:
            lost = None
        witness.say("checked", key, n=n, lost=lost)
        return key


@app.task(bind=True, lock_args=["key"], **UNIQUE, **LATE)
def gated(self, key):
    return _gated(self, key)


@app.task(bind=True, lock_args=["key"], **UNIQUE)
def gated_early(self, key):
    return _gated(self, key)


@app.task(bind=True, lock_args=["key"], on_outage="proceed", **UNIQUE, **LATE)
def proceeds(self, key):
    return _gated(self, key)


@app.task(bind=True, lock_args=["key"], on_conflict="raise", **UNIQUE, **LATE)
def raises(self, key):
    return _gated(self, key)


@app.task(bind=True, lock_args=["key"], on_conflict="raise", autoretry_for=(LockConflict,),
          retry_kwargs={"countdown": 0.5, "max_retries": 100}, **UNIQUE, **LATE)  # fmt: skip
def insists(self, key):
    return _gated(self, key)


@app.task(bind=True, lock_args=["key"], max_retries=3, **UNIQUE, **LATE)
def retries(self, key, countdown=0):
    """Two runs, each up to its gate: the first ends with a retry."""
    _gated(self, key)
    if self.request.retries == 0:
        raise self.retry(countdown=countdown)
    return key


@app.task(bind=True, lock_args=["key"], track_started=True, max_retries=0, **UNIQUE, **LATE)
def fails_tracked(self, key, seconds):
    _work(self, key, seconds)
    raise ValueError(key)


@app.task(bind=True, lock_args=["key"], **UNIQUE)
def publishes_itself(self, key):
    with witness.run(key):
        again = publishes_itself.delay(key)
        return [again.duplicate, again.id]


@app.task(bind=True, lock_args=["key"], **UNIQUE, **LATE)
def imports_slowly(self, key):
    """What the keeper of this worker was about to import when the pool forked, with ``SHOP_SLOW_BEAT``."""
    shop_hooks.import_slowly()
    return _work(self, key, 0)


@app.task(bind=True, base=UniqueTask)
def without_lock(self, key):
    return _work(self, key, 0)


@app.task(base=Task, acks_late=True)
def step(key):
    with witness.run(key):
        return key


shop_hooks.install(app, witness, gates)
