"""The rows L4, L5, L8, L11 and L12 of the design: somebody else ends the run, or the process that it runs in."""

# ruff: noqa: N802  (a test bears the number of its row)

import os
import signal

import pytest
from celery.exceptions import SoftTimeLimitExceeded, TaskRevokedError, TimeLimitExceeded, WorkerLostError
from support.ends import CELERY_57, EARLY_AND_LATE
from support.waiting import eventually

IN_CHILDREN = pytest.mark.pools("prefork")
#: greenlets have a hard time limit, and can be ended
ALSO_IN_GREENLETS = pytest.mark.pools("prefork", "gevent")
#: Celery 5.6 neither acknowledges nor rejects the message of a greenlet that was ended so: it comes with the next connection
IF_REDELIVERED = ALSO_IN_GREENLETS if CELERY_57 else IN_CHILDREN


@IN_CHILDREN
@EARLY_AND_LATE
def test_L04_a_soft_time_limit_frees_the_lock(shop, worker, over, key, name):
    task = getattr(shop, name)
    with pytest.raises(SoftTimeLimitExceeded):
        task.apply_async((key, "hang"), soft_time_limit=1).get(timeout=30)
    over(task, runs=1)


@ALSO_IN_GREENLETS
@pytest.mark.parametrize("name", ["ends_by", "ends_late_acked_by"])
def test_L05_a_hard_time_limit_frees_the_lock_where_celery_acknowledges(shop, worker, over, key, name):
    task = getattr(shop, name)
    with pytest.raises(TimeLimitExceeded):
        task.apply_async((key, "hang"), time_limit=1).get(timeout=30)
    over(task, runs=1)


@IF_REDELIVERED
def test_L05_a_hard_time_limit_keeps_the_lock_where_celery_redelivers(shop, worker, kept, over, key):
    kept(shop.ends_late_requeued_by, "hang", lambda pid: None, hop=0, time_limit=2)
    over(shop.ends_late_requeued_by, runs=2)


@IF_REDELIVERED
@pytest.mark.parametrize("name", ["ends_by", "ends_late_requeued_by"])
def test_L05_a_hard_time_limit_before_the_start_frees_or_keeps_the_lock_in_the_same_way(shop, worker, witness, over, key, name):
    """A child can hang before it has asked for its run, in somebody's receiver for example: the lock waits, and does not run."""
    task = getattr(shop, name)
    witness.redis.hset("die at", key, "start: before, slowly")
    first = task.apply_async((key, "success"), task_id=key, time_limit=1)
    eventually(lambda: witness.count("reached", key))
    if name == "ends_late_requeued_by":
        eventually(lambda: witness.count("end", key))
        over(task, runs=1)
    else:
        with pytest.raises(TimeLimitExceeded):
            first.get(timeout=30)
        over(task, runs=0)


@IN_CHILDREN
@pytest.mark.parametrize("name", ["ends_by", "ends_late_acked_by", "ends_late_by"])
def test_L05_sys_exit_frees_the_lock_unless_celery_redelivers(shop, worker, witness, over, state, key, name):
    """A lost worker for Celery 5.7; Celery 5.6 takes it for a failure, so it redelivers nothing, and cannot store the result."""
    task = getattr(shop, name)
    first = task.delay(key, "exit")
    if not CELERY_57:
        eventually(lambda: witness.count("end", key))
        over(task, runs=1)
        assert state(first) == "PENDING"
    elif name == "ends_late_by":
        assert first.get(timeout=30) == key
        over(task, runs=2)
    else:
        with pytest.raises(WorkerLostError):
            first.get(timeout=30)
        over(task, runs=1)


@ALSO_IN_GREENLETS
@pytest.mark.parametrize("signal_name", ["SIGTERM", "SIGKILL"])
@EARLY_AND_LATE
def test_L08_a_terminated_run_frees_the_lock(shop, worker, witness, over, state, key, name, signal_name):
    task = getattr(shop, name)
    first = task.delay(key, "hang")
    eventually(lambda: witness.count("start", key))
    twin = task.delay(key, "hang")
    assert (twin.duplicate, twin.id) == (True, first.id)
    first.revoke(terminate=True, signal=signal_name)
    with pytest.raises(TaskRevokedError):
        twin.get(timeout=30)
    over(task, runs=1)
    assert state(first) == "REVOKED"


@IN_CHILDREN
@pytest.mark.parametrize("name", ["ends_by", "ends_late_acked_by"])
def test_L11_a_killed_child_frees_the_lock_where_celery_does_not_redeliver(shop, worker, over, key, name):
    task = getattr(shop, name)
    with pytest.raises(WorkerLostError):
        task.delay(key, "sigkill").get(timeout=30)
    over(task, runs=1)


@IN_CHILDREN
@pytest.mark.parametrize("point", ["start: before", "start: after"])
@pytest.mark.parametrize("name", ["ends_by", "ends_late_acked_by"])
def test_L11_a_child_killed_at_its_start_frees_the_lock(shop, worker, witness, over, key, name, point):
    task = getattr(shop, name)
    witness.redis.hset("die at", key, point)
    with pytest.raises(WorkerLostError):
        task.apply_async((key, "success"), task_id=key).get(timeout=30)
    over(task, runs=0)


@IN_CHILDREN
@pytest.mark.parametrize("name", ["ends_by", "ends_late_acked_by"])
def test_L11_a_killed_child_does_not_take_along_the_retry_that_it_had_published(shop, worker, witness, over, state, key, name):
    """``retry(throw=False)`` leaves the body running: the retry is in the broker, and runs, however the body ends."""
    task = getattr(shop, name)
    first = task.delay(key, "retry, and die")
    eventually(lambda: witness.count("start", key) == 2)
    assert eventually(lambda: state(first) == "SUCCESS")
    over(task, runs=2)


@IN_CHILDREN
def test_L12_a_killed_child_keeps_the_lock_where_celery_redelivers(shop, worker, kept, over, key):
    kept(shop.ends_late_by, "hang", lambda pid: os.kill(pid, signal.SIGKILL), hop=0)
    over(shop.ends_late_by, runs=2)


@IN_CHILDREN
@pytest.mark.parametrize("point", ["start: before", "start: after"])
def test_L12_a_child_killed_at_its_start_keeps_the_lock_where_celery_redelivers(shop, worker, witness, over, key, point):
    witness.redis.hset("die at", key, point)
    assert shop.ends_late_by.apply_async((key, "success"), task_id=key).get(timeout=30) == key
    over(shop.ends_late_by, runs=1)


@IN_CHILDREN
@pytest.mark.parametrize("name", ["ends_worker_retried_by", "ends_late_worker_retried_by"])
def test_L12_a_retry_for_a_killed_child_keeps_the_lock(shop, worker, kept, over, key, name):
    """Celery 5.6 does not know ``retry_on_worker_lost``: the call fails."""
    task = getattr(shop, name)
    if CELERY_57:
        kept(task, "hang", lambda pid: os.kill(pid, signal.SIGKILL), hop=1)
        over(task, runs=2)
    else:
        with pytest.raises(WorkerLostError):
            task.delay(key, "sigkill").get(timeout=30)
        over(task, runs=1)


@IN_CHILDREN
@pytest.mark.parametrize("point", ["start: before", "start: after"])
@pytest.mark.parametrize("name", ["ends_worker_retried_by", "ends_late_worker_retried_by"])
def test_L12_a_retry_for_a_child_that_was_killed_at_its_start_runs(shop, worker, witness, over, state, key, name, point):
    task = getattr(shop, name)
    witness.redis.hset("die at", key, point)
    first = task.apply_async((key, "success"), task_id=key)
    eventually(lambda: witness.count("reached", key))
    if CELERY_57:
        assert eventually(lambda: state(first) == "SUCCESS")
        over(task, runs=1)
    else:
        with pytest.raises(WorkerLostError):
            first.get(timeout=30)
        over(task, runs=0)
