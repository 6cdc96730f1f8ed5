"""More of the shop: tasks under each of the five locks, for ``celery -A shop_locks``."""

import time

from shop import LATE, app, witness
from shop_gated import gates

from celery_once_more import LockConflict, LockLost, UniqueTask, current_lock
from celery_once_more.lock_types import LOCK_TYPES

__all__ = ["app"]

#: seconds that nobody waits for
LONG = 3600


def _gated(self, key, end="success"):
    """Run until the test opens ``key:n``, n = 1 for the first run of this key; then end as asked: run 1 does, others succeed."""
    n = witness.redis.incr(f"runs:{key}")
    with witness.run(key, n=n, task_id=self.request.id, retries=self.request.retries, token=current_lock.fencing_token):
        gates.wait(f"{key}:{n}")
        witness.say("gone through", key, n=n, lost=_lost())
    if end == "failure" and n == 1:
        raise ValueError(key)
    if end == "retry" and n == 1:
        raise self.retry(countdown=LONG)
    if end == "retry at once" and n == 1:
        raise self.retry(countdown=0, max_retries=1)
    return key


def _lost():
    """What ``current_lock.check()`` says of the lock."""
    try:
        current_lock.check()
    except LockLost as exc:
        return str(exc)
    return None


def _task(name, lock, **options):
    options = {"bind": True, "base": UniqueTask, "lock": lock, "lock_args": ["key"], **LATE} | options
    return app.task(name=f"shop_locks.{name}", **options)(_gated)


#: seconds after which a rescheduled message of these tasks asks again
SOON = 0.2
AT_START = {lock.name: {"reschedule_countdown": SOON} for lock in LOCK_TYPES.values() if lock.at_start}
#: a task for each lock, as the lock's name alone makes it
by_lock = {name: _task(name, name, lock_ttl=LONG if lock.kept else None, **AT_START.get(name, {}))
           for name, lock in LOCK_TYPES.items()}  # fmt: skip

# -- the server strategies of the two locks that a start may find taken --

logs = {name: _task(f"{name}_logs", name, on_conflict={"server": "log"}) for name in AT_START}
raises = {name: _task(f"{name}_raises", name, on_conflict={"server": "raise"}) for name in AT_START}
insists = {
    name: _task(f"{name}_insists", name, on_conflict={"server": "raise"}, autoretry_for=(LockConflict,),
                retry_kwargs={"countdown": SOON, "max_retries": 1000})
    for name in AT_START
}  # fmt: skip

while_executing_early = _task("while_executing_early", "while_executing", acks_late=False, reject_on_worker_lost=None,
                              **AT_START["while_executing"])  # fmt: skip
retries_never = _task("retries_never", "while_executing", max_retries=0, **AT_START["while_executing"])
reschedules_late = _task("reschedules_late", "while_executing", reschedule_countdown=600)

# -- many calls at once --


@app.task(bind=True, base=UniqueTask, lock="until_and_while_executing", lock_args=["key"], reschedule_countdown=0.05, **LATE)
def crowded(self, key, n):
    """Take a moment, or as long as the test holds all of them back; by its end it has taken a step."""
    with witness.run(key, n=n, task_id=self.request.id):
        gates.wait("crowd")
        time.sleep(0.03)
        return n


@app.task(bind=True, base=UniqueTask, lock="while_executing", lock_args=["key"], lock_limit=3, reschedule_countdown=0.1, **LATE)
def limited(self, key, n):
    with witness.run(key, n=n, task_id=self.request.id):
        time.sleep(0.2)
        return n


@app.task
def collect(results):
    return results


@app.task(bind=True, base=UniqueTask, lock="until_expired", lock_ttl=3)
def periodic(self):
    """Say when, on the store's clock, and when the period of this call ends, by its ticket; in milliseconds."""
    seconds, microseconds = witness.redis.time()
    at_ms, stop = seconds * 1000 + microseconds / 1000, self.request.get("once_more")["stop"]
    with witness.run("periodic", task_id=self.request.id, at_ms=at_ms, stop=stop):
        pass
