"""The rows of the matrix: every way a call can end. What a row can say stands in ``row.py``."""

from celery import VERSION

from matrix import brokers, clocks, deaths, limits, revokes, signals, stores
from matrix.row import LEASE, QUEUE_LEASE, Expect, Row

CELERY_57 = VERSION >= (5, 7)
ONCE, AGAIN = Expect(1, "SUCCESS"), Expect(2, "SUCCESS")
LOST, REVOKED, NO_RESULT = Expect(1, "FAILURE WorkerLostError"), Expect(0, "REVOKED"), Expect(1, "PENDING")
#: Celery 5.7 stores a failure, 5.6 nothing
REJECTED = Expect(1, "FAILURE Reject" if CELERY_57 else "PENDING")
#: for Celery 5.7 a lost worker; 5.6 takes it for a failure, so it redelivers nothing, and cannot store the result
EXITED, EXITED_LATE = (LOST, AGAIN) if CELERY_57 else (NO_RESULT, NO_RESULT)
#: what a worker that is gone leaves behind
GONE, GONE_LATE = Expect(1, "PENDING", LEASE), Expect(2, "SUCCESS", LEASE)
#: Celery drops the message of a run that it cuts short, and calls that a retry
DROPPED = Expect(1, "RETRY")
#: nobody could free it at its end
LAPSES, TOLD = Expect(1, "SUCCESS", LEASE), Expect(1, "FAILURE LockLost")
#: nobody sees the end of a message that waits
UNSEEN = Expect(0, "PENDING", QUEUE_LEASE)
#: but where the broker can be looked at
PROVED = {"Redis": (Expect(0, "PENDING"),) * 2}

#: solo acknowledges a message when its run is over, whatever the task says: its loop has no time before
SOLO = {"solo": (GONE_LATE, GONE_LATE)}
NO_CHILDREN = dict.fromkeys(("threads", "gevent", "solo"), "no child processes")
NO_LIMITS = {"threads": "no time limits", "solo": "no time limits"}
#: a cold shutdown cannot end a thread; with greenlets it breaks off, as nothing may wait in the hub, and what is left is up to
#: chance; in solo it fails, in the middle of the task
COLD = {"threads": (ONCE,) * 2, "gevent": "the shutdown breaks off", "solo": (Expect(1, "FAILURE NotImplementedError"),) * 2}
#: Celery would wait in the hub, where nothing may wait
NO_SOFT = {"gevent": "no soft shutdown"}
TIMED_OUT = Expect(1, "FAILURE TimeLimitExceeded")
#: Celery 5.6 sends an early acknowledgement of a greenlet when its consumer wakes up, which RabbitMQ's does for a message alone
LATE_56 = {} if CELERY_57 else {"gevent, RabbitMQ": (GONE_LATE, GONE_LATE)}
#: Celery 5.6 does not acknowledge the message of a greenlet that was over its limit
GREEN_56 = {} if CELERY_57 else {"gevent, Redis": (TIMED_OUT, AGAIN)}
#: a broker that does not deliver again while a run waits for the store, at its own question and at its end
PATIENT = {"broker_transport_options": {"visibility_timeout": 60}}
#: seconds, where a worker must take a lock up again before long
SHORT = {"lock_lease": 2}

ROWS = (
    # -- ends of its own --
    Row("success", "L3", deaths.ends, early=ONCE),
    Row("failure", "L4", deaths.ends, how="fails", early=Expect(1, "FAILURE ValueError")),
    Row("retry", "L6", deaths.ends, how="retry", early=AGAIN),
    Row("replace()", "L6", deaths.ends, how="replace", early=AGAIN),
    Row("Ignore", "L4", deaths.ends, how="Ignore", early=NO_RESULT),
    Row("Reject, not requeued", "L4", deaths.ends, how="Reject", early=REJECTED),
    Row("Reject, requeued", "L4, L7", deaths.ends, how="Reject, requeue", early=NO_RESULT, late=AGAIN),
    Row("sys.exit", "L5", deaths.ends_its_thread, how="sys.exit", twin_due=1, early=EXITED, late=EXITED_LATE,
        elsewhere=dict.fromkeys(("threads", "gevent", "solo"), (NO_RESULT, AGAIN))),
    Row("os._exit", "L11, L12", deaths.ends_its_process, how="os._exit", twin_due=1, early=LOST, late=AGAIN,
        elsewhere={**dict.fromkeys(("threads", "gevent"), (GONE, GONE_LATE)), **SOLO, **LATE_56}),
    Row("SIGKILL of the child", "L11, L12", signals.kill_child, early=LOST, late=AGAIN, elsewhere=NO_CHILDREN),
    Row("hard time limit", "L5", limits.passes, options={"time_limit": 2}, early=TIMED_OUT, elsewhere={**NO_LIMITS, **GREEN_56}),
    Row("soft time limit", "L4", limits.passes, options={"soft_time_limit": 2}, early=Expect(1, "FAILURE SoftTimeLimitExceeded"),
        elsewhere={**NO_LIMITS, "gevent": "no soft limit"}),
    # -- revoked, expired --
    Row("revoked before its start", "L8", revokes.before_start, runs=False, early=REVOKED),
    Row("revoked while held for its ETA", "L8", revokes.held_for_eta, runs=False, options={"queue": "celery", "countdown": 3},
        early=REVOKED),
    Row("revoked and terminated", "L8", revokes.terminate, early=Expect(1, "REVOKED"),
        elsewhere={"threads": "a thread cannot be ended", "solo": "hears of nothing during a run"}),
    Row("expired in the queue", "L9", revokes.expire, runs=False, options={"expires": 1}, early=REVOKED,
        elsewhere={"RabbitMQ": (Expect(0, "PENDING"),) * 2}),
    # -- messages that cannot run --
    Row("unregistered task", "L10", brokers.deliver, unknown=True, runs=False, early=Expect(0, "FAILURE NotRegistered")),
    Row("undecodable body", "L10", brokers.spoil, runs=False, early=Expect(0, "PENDING")),
    Row("queue purged", "L16", brokers.purge, runs=False, conf={"once_more_lease": 2}, early=UNSEEN, elsewhere=PROVED),
    # -- services --
    Row("broker connection cut", "L3", brokers.cut, options=SHORT, spoils=True, twin_due=1, early=ONCE),
    Row("lock store cut", "L18", stores.cut, conf=PATIENT, twin_due=1, early=LAPSES),
    Row("lock store paused", "L18", stores.pause, conf=PATIENT, twin_due=1, early=LAPSES),
    Row("lock store flushed", "L17", stores.flush, twin=False, forgets=True, options=SHORT, early=TOLD),
    # -- the end of a worker --
    Row("MemoryError", "L4", deaths.leaves_its_request_behind, how="MemoryError", twin_due=1,
        early=Expect(1, "FAILURE MemoryError")),
    Row("SIGKILL of the main process", "L13", signals.kill_main, twin_due=1, early=GONE, late=GONE_LATE,
        elsewhere={**SOLO, **LATE_56}),
    Row("SIGKILL of the process group", "L13", signals.kill_group, twin_due=1, early=GONE, late=GONE_LATE,
        elsewhere={**SOLO, **LATE_56}),
    Row("reaper killed in mid-pass", "L13", stores.kill_the_reaper, twin_due=1, early=GONE, late=GONE_LATE,
        elsewhere={**SOLO, **LATE_56}),
    Row("SIGTERM (warm shutdown)", "L14", signals.shut_down_warm, twin_due=1, early=ONCE),
    Row("SIGQUIT (cold shutdown)", "L15", signals.shut_down_cold, twin_due=1, early=DROPPED, late=AGAIN, elsewhere=COLD),
    # -- workers of another kind --
    Row("soft shutdown, the run ends in time", "L14", signals.shut_down_softly, conf={"worker_soft_shutdown_timeout": 3},
        twin_due=1, early=ONCE, elsewhere={**NO_SOFT, "solo": "the run stands still meanwhile"}),
    Row("soft shutdown, its time runs out", "L15", signals.shut_down_cold, conf={"worker_soft_shutdown_timeout": 1},
        twin_due=1, early=DROPPED, late=AGAIN, elsewhere={**COLD, **NO_SOFT}),
    Row("SIGSTOP past the lease, SIGCONT", "L19", signals.freeze, worker=("-c", "1"), gated=2, twin=False, overlaps=True,
        spoils=True, early=Expect(1, "FAILURE LockLost", LEASE), late=GONE_LATE,
        elsewhere={"solo, Redis": (GONE_LATE,) * 2, "RabbitMQ": (Expect(1, "FAILURE LockLost", LEASE),) * 2}),
    Row("child recycled after each task", "L3", deaths.ends, worker=("--max-tasks-per-child=1",), early=ONCE,
        elsewhere=NO_CHILDREN),
    Row("worker's clock two minutes ahead", "L3", deaths.ends, env=clocks.off(clocks.TWO_MINUTES), early=ONCE),
    Row("worker's clock two minutes behind", "L3", deaths.ends, env=clocks.off(-clocks.TWO_MINUTES), early=ONCE),
)  # fmt: skip
BY_NAME = {row.name: row for row in ROWS}
assert len(BY_NAME) == len(ROWS)
