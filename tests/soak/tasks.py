"""The app of the soak: one unique task per lock, all of them acknowledged late; each call says how it wants to end.

``SOAK_BROKER``, ``SOAK_LOCKS``, ``SOAK_WITNESS``: the servers. ``SOAK_WORKER``: the name of this worker, if it is one.
``SOAK_MUTANT``: a rule of the protocol that workers do without (``support.mutants``).
"""

import faulthandler
import os
import signal
import threading
import time
from types import SimpleNamespace

from celery import Celery, signals
from support import mutants

from celery_once_more import LockLost, UniqueTask, current_lock
from celery_once_more.exceptions import StoreUnavailable
from soak.timing import LEASE, NOTICED, QUEUE_LEASE, RETRY_AFTER, VISIBILITY_TIMEOUT
from soak.witness import Witness

BROKER = os.environ["SOAK_BROKER"]
WORKER = os.environ.get("SOAK_WORKER")
witness = Witness(os.environ["SOAK_WITNESS"])

app = Celery("soak", broker=f"{BROKER}/2", backend=f"{BROKER}/1", set_as_current=WORKER is not None)
app.conf.update(
    once_more_redis_url=os.environ["SOAK_LOCKS"],
    once_more_lease=LEASE,
    once_more_queue_lease=QUEUE_LEASE,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    result_expires=3600,
    broker_transport_options={
        "client_name": WORKER or "publisher",  # so that the ledger tells whose connection it was
        "visibility_timeout": VISIBILITY_TIMEOUT,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        "unacked_mutex_expire": 2,  # a worker that dies in its sweep leaves this lock of kombu's, for five minutes by default
    },
)


class Refused(Exception):
    """The write came too late: somebody with a greater token was there."""


def body(task, key, seconds, end, step=0):
    """Stay inside for ``seconds``, and end as the call says; the steps of a call are its retries and its replacement."""
    request = task.request
    alone = task.lock == "until_executing"  # calls of this one may run beside each other, a call beside itself may not
    place = f"in {request.id}" if alone else f"in {task.lock} {key}"
    about = {"task_id": request.id, "worker": WORKER, "redelivered": bool(request.delivery_info.get("redelivered")),
             "step": [request.retries, step]}  # fmt: skip
    visit = witness.enter(place, current_lock.fencing_token, **about)
    outcome, more = "cut short", {}
    try:
        until = time.monotonic() + seconds
        while time.monotonic() < until:  # in small steps, so that a signal that raises in Python is met soon
            time.sleep(0.02)
        more["asked"] = time.time()
        current_lock.check()
        more["held"] = True
        outcome = _outcome(end, request.retries, step)
    except (LockLost, StoreUnavailable) as exc:
        outcome, more["why"] = type(exc).__name__, str(exc)
        raise
    finally:
        written = visit.leave(outcome, **more)
    if not written:
        raise Refused(f"{request.id} {visit.number}")
    if outcome == "retries":
        raise task.retry(countdown=RETRY_AFTER[key % len(RETRY_AFTER)])
    if outcome == "is replaced":
        raise task.replace(task.s(key, seconds, end, step + 1))
    if outcome == "fails":
        raise ValueError(f"{request.id} {visit.number}")
    return f"{request.id} {visit.number}"


def _outcome(end, retries, step):
    if end == "retry" and retries < 1:
        return "retries"
    if end == "replace" and step < 1:
        return "is replaced"
    return "fails" if end == "fail" else "succeeds"


def _unique(lock, **options):
    @app.task(bind=True, base=UniqueTask, name=f"soak.{lock}", lock=lock, lock_args=["key"], reschedule_countdown=0.5,
              acks_late=True, reject_on_worker_lost=True, **options)  # fmt: skip
    def unique(self, key, seconds, end, step=0):
        return body(self, key, seconds, end, step)

    return unique


until_executed = _unique("until_executed")
until_executing = _unique("until_executing")
while_executing = _unique("while_executing")
until_and_while_executing = _unique("until_and_while_executing")
TASKS = (until_executed, until_executing, while_executing, until_and_while_executing)


def _tell_stalls():
    """This process did not get to do anything for a while: nor did its keeper."""
    before = time.time()
    while True:
        time.sleep(0.1)
        now = time.time()
        if now - before > NOTICED:
            witness.say("stall", worker=WORKER, since=before, until=now)
        before = now


@signals.worker_ready.connect
def _watch(**_):
    if WORKER:
        threading.Thread(target=_tell_stalls, daemon=True).start()


if WORKER:
    faulthandler.register(signal.SIGUSR2, all_threads=True)  # where does it stand? asked of a worker that does not end
if WORKER and os.environ.get("SOAK_MUTANT"):
    mutants.install(os.environ["SOAK_MUTANT"], SimpleNamespace(say=lambda event, name: witness.say(event, name=name)))
