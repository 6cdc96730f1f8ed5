"""The app under test, as a user would write it: real tasks for real workers. Databases: 0 broker, 1 results, 2 locks, 3 witness.

``SHOP_REDIS`` is the server's URL without a database; ``SHOP_BROKER`` that of another broker; ``SHOP_LOCKS`` the way to the same
server's locks, if it is another one; ``SHOP_CONF`` is JSON with more settings.
"""

import json
import os
import signal
import sys
import time

import redis
from celery import VERSION, Celery, Task
from celery.concurrency.asynpool import AsynPool
from celery.exceptions import Ignore, Reject
from support.broker import Broker
from support.witness import Witness

from celery_once_more import LockLost, UniqueTask, current_lock
from celery_once_more.locks.redis import RedisStore

REDIS = os.environ["SHOP_REDIS"]
LOCKS = f"{os.environ.get('SHOP_LOCKS', REDIS)}/2"
witness = Witness(f"{REDIS}/3")

app = Celery("shop", broker=os.environ.get("SHOP_BROKER", f"{REDIS}/0"), backend=f"{REDIS}/1")
app.conf.update(
    once_more_redis_url=LOCKS,
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
def ends_by(self, key, how="success"):
    return _end(self, key, how)


@app.task(bind=True, lock_args=["key"], **UNIQUE, **LATE)
def ends_late_by(self, key, how="success"):
    return _end(self, key, how)


def _end(self, key, how):
    """Run once by ``how`` (with ``"… when told"``: once the test has opened gate 1), and plainly every further time."""
    first = witness.redis.incr(f"ends:{key}") == 1
    _body(self, key, how, first)
    # the body of a run that retries is over when its retry is published: from then on the next run may start
    if how == "retry always":
        raise self.retry(countdown=0, max_retries=1)
    if how in ("retry", "retry when told") and first:
        raise self.retry(countdown=0)
    if how == "retry in a second" and first:
        raise self.retry(countdown=1)
    return key


def _body(self, key, how, first):
    with witness.run(key, how=how, task_id=self.request.id):
        if first and how.endswith(" when told"):
            _hang(lambda: witness.redis.sismember(f"open:{key}", 1))
            how = how.removesuffix(" when told")
        if how == "exception always":
            raise ValueError(key)
        if not first:
            return
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
        if how == "hang":
            _hang(lambda: False)
        if how == "retry, and go on":
            self.retry(countdown=1, throw=False)  # not at once: it would meet this run, and be put off for a lease
        if how == "retry, and go on until told":
            self.retry(countdown=0, throw=False)
            _hang(lambda: witness.redis.sismember(f"open:{key}", 1))
        if how == "retry, unsendable":
            raise self.retry(countdown=0, args=(key, object()))
        if how == "retry, and die":
            self.retry(countdown=1, throw=False)
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "deaf until told":
            listens = signal.signal(signal.SIGTERM, signal.SIG_IGN)
            _hang(lambda: witness.redis.sismember(f"open:{key}", 1))
            signal.signal(signal.SIGTERM, listens)
        if how == "replace":
            raise self.replace(self.s(key, how))
        if how == "replace by another":
            raise self.replace(self.s(f"{key}, another"))


# -- the ends of a run (test_ends_*.py) --


def _hang(until):
    """In small steps, so that a signal that raises in Python is met soon."""
    while not until():
        time.sleep(0.02)


#: late acknowledgement as Celery's defaults have it: a failure, a time limit and a lost worker are acknowledged
LATE_ACKED = {"acks_late": True, "reject_on_worker_lost": False}
#: a time limit gives the message back; the option has one name in Celery 5.6 and another in 5.7
LATE_REQUEUED = {**LATE, "acks_on_timeout" if VERSION >= (5, 7) else "acks_on_failure_or_timeout": False}
AUTORETRY = {"autoretry_for": (ValueError,), "max_retries": 1, "default_retry_delay": 0}
#: Celery 5.7 and later: the main process publishes a retry for a lost worker
RETRIED = {"retry_on_worker_lost": True, "max_retries": 1, "default_retry_delay": 0}


@app.task(bind=True, lock_args=["key"], **UNIQUE, **LATE_ACKED)
def ends_late_acked_by(self, key, how="success"):
    return _end(self, key, how)


@app.task(bind=True, lock_args=["key"], **UNIQUE, **LATE_REQUEUED)
def ends_late_requeued_by(self, key, how="success"):
    return _end(self, key, how)


@app.task(bind=True, lock_args=["key"], **UNIQUE, **AUTORETRY)
def ends_autoretried_by(self, key, how="success"):
    return _end(self, key, how)


@app.task(bind=True, lock_args=["key"], **UNIQUE, **LATE, **AUTORETRY)
def ends_late_autoretried_by(self, key, how="success"):
    return _end(self, key, how)


@app.task(bind=True, lock_args=["key"], **UNIQUE, **RETRIED)
def ends_worker_retried_by(self, key, how="success"):
    return _end(self, key, how)


@app.task(bind=True, lock_args=["key"], **UNIQUE, **LATE_ACKED, **RETRIED)
def ends_late_worker_retried_by(self, key, how="success"):
    return _end(self, key, how)


@app.task(bind=True, lock_args=["key"], **UNIQUE)
def gated(self, key):
    return _gated(self, key)


@app.task(bind=True, lock_args=["key"], **UNIQUE, **LATE)
def gated_late(self, key):
    return _gated(self, key)


def open_gate(key, run):
    """Let the run of this number (the first is 1) go through."""
    witness.redis.sadd(f"open:{key}", run)


def _gated(self, key):
    """Run until the test opens the gate of this run, ask whether the lock was kept until then, and return the run's number."""
    number = witness.redis.incr(f"runs:{key}")
    with witness.run(key, number=number, task_id=self.request.id, token=current_lock.fencing_token):
        _hang(lambda: witness.redis.sismember(f"open:{key}", number))
        try:
            current_lock.check()
        except LockLost as exc:
            witness.say("lost", key, number=number, why=str(exc))
            raise
        witness.say("kept", key, number=number)
        return number


def _noted(task_id, **headers):
    """Whether the worker has noted that it fetched this message: before, its death loses it for kombu."""
    held = [message["headers"] for message in Broker(redis.Redis.from_url(f"{REDIS}/0")).unacknowledged()]
    return any({"id": task_id, **headers}.items() <= one.items() for one in held)


def _put_crash_point(verb):
    """Die by SIGKILL just before or just after this act of the lock store, once, where the test has asked for it:
    ``witness.redis.hset("die at", task_id, "confirm: before")``. With ``"confirm: before, all"`` the whole worker dies,
    with ``"confirm: before, slowly"`` nobody dies: the process waits until the test opens the gate of the task id.
    """
    act = getattr(RedisStore, verb)

    def die(when, task_id):
        asked = witness.redis.hget("die at", task_id) or ""
        point, _, how = asked.partition(", ")
        if point == f"{verb}: {when}":
            witness.redis.hdel("die at", task_id)
            witness.say("reached", task_id, where=asked)
            if how == "slowly":
                _hang(lambda: witness.redis.sismember(f"open:{task_id}", "act"))
                return
            if how == "all":
                _hang(lambda: verb != "confirm" or _noted(task_id, retries=1))
                os.killpg(os.getpgid(0), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def act_or_die(store, ticket, **more):
        die("before", ticket.task_id)
        answer = act(store, ticket, **more)
        die("after", ticket.task_id)
        return answer

    setattr(RedisStore, verb, act_or_die)


if os.environ.get("SHOP_CRASH_POINTS"):
    AsynPool.timers = property(lambda pool: {pool.maintain_pool: 0.5})  # how often it looks for lost children; 5 s in Celery
    for _verb in ("acquire", "start", "requeue", "confirm", "finish"):
        _put_crash_point(_verb)
