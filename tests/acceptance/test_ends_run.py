"""The rows L3 to L9, L11 and L12 of the design: every end that a run can have, in the life of one worker.

The lease is a minute and the queue lease a day here, and nothing waits so long: a lock that is free was freed, and did not lapse.
"""

# ruff: noqa: N802  (a test bears the number of its row)

import os
import signal

import pytest
from celery import VERSION
from celery.exceptions import (
    MaxRetriesExceededError,
    Reject,
    SoftTimeLimitExceeded,
    TaskRevokedError,
    TimeLimitExceeded,
    WorkerLostError,
)
from support import held
from support.shop_life import shop_for_a_module
from support.waiting import eventually
from support.worker_process import WorkerNode, WorkerProcess

CELERY_57 = VERSION >= (5, 7)


@pytest.fixture(scope="module")
def shop(shop_env, redis_server):
    import shop

    yield from shop_for_a_module(shop, redis_server)


@pytest.fixture(scope="module")
def worker(shop):
    process = WorkerProcess("-c", "4", name="ends", env={"SHOP_CRASH_POINTS": "1"})
    process.ready()
    yield WorkerNode(process, shop.app)
    process.teardown()


@pytest.fixture(scope="module")
def bystanders(shop, worker):
    """Two calls that nobody touches: one runs and one waits, all the time."""
    shop.gated.delay("runs")
    shop.gated.apply_async(("waits",), countdown=3600)
    eventually(lambda: shop.witness.count("start", "runs"))
    return [held.holder(shop.gated, key).identity for key in ("runs", "waits")]


@pytest.fixture(autouse=True)
def nothing_else_was_freed(shop, bystanders):
    yield
    now = [held.holder(shop.gated, key) for key in ("runs", "waits")]
    assert [holder.identity for holder in now] == bystanders
    assert [holder.phase for holder in now] == ["R", "W"]


@pytest.fixture
def key(request):
    return request.node.name


@pytest.fixture
def over(shop, witness, key):
    def over(task, *, runs):
        """The lock is free, the task ran so often and never twice at once, and the next publish is admitted and runs."""
        eventually(lambda: held.free(task, key), what="a free lock")
        assert witness.count("start", key) == runs
        again = task.delay(key)
        assert not again.duplicate
        assert again.get(timeout=30) == key
        assert not [start for start in witness.overlaps() if start["key"] == key]

    return over


@pytest.fixture
def state(shop):
    """The stored state, asked each time: a result object remembers the first final one."""
    return lambda result: shop.app.AsyncResult(result.id).state


@pytest.fixture
def kept(shop, witness, key):
    def kept(task, how, end_the_run, *, hop, **options):
        """Start a run, end it, and stop the message that follows (number ``hop``) before it asks for its run: until then
        the lock waits for it, and a publish is answered with its id.
        """
        first = task.apply_async((key, how), task_id=key, **options)
        (start,) = eventually(lambda: witness.events("start", key))
        witness.redis.hset("die at", key, "start: before, slowly")
        end_the_run(start["pid"])
        eventually(lambda: witness.count("reached", key))
        waits = eventually(lambda: (now := held.holder(task, key)) and now.phase == "W" and now)
        assert (waits.task_id, waits.hops) == (key, [hop])
        twin = task.delay(key)
        assert (twin.duplicate, twin.id) == (True, key)
        shop.open_gate(key, "act")
        assert eventually(lambda: shop.app.AsyncResult(first.id).state == "SUCCESS")
        assert twin.get(timeout=30) == first.get(timeout=30) == key

    return kept


EARLY_AND_LATE = pytest.mark.parametrize("name", ["ends_by", "ends_late_by"])


@EARLY_AND_LATE
def test_L01_a_retry_that_cannot_be_published_frees_the_lock(shop, worker, witness, over, state, key, name):
    """Celery ends such a run as one that was rejected: 5.7 stores FAILURE for it, 5.6 nothing."""
    task = getattr(shop, name)
    first = task.delay(key, "retry, unsendable")
    eventually(lambda: witness.count("end", key))
    over(task, runs=1)
    assert eventually(lambda: state(first) == ("FAILURE" if CELERY_57 else "PENDING"))


@EARLY_AND_LATE
def test_L03_success_frees_the_lock(shop, worker, over, key, name):
    task = getattr(shop, name)
    assert task.delay(key, "success").get(timeout=30) == key
    over(task, runs=1)


@EARLY_AND_LATE
def test_L04_a_failure_frees_the_lock(shop, worker, over, key, name):
    task = getattr(shop, name)
    with pytest.raises(ValueError, match="L04"):
        task.delay(key, "exception").get(timeout=30)
    over(task, runs=1)


@EARLY_AND_LATE
def test_L04_ignore_frees_the_lock_and_leaves_no_result(shop, worker, witness, over, state, key, name):
    task = getattr(shop, name)
    first = task.delay(key, "ignore")
    eventually(lambda: witness.count("end", key))
    over(task, runs=1)
    assert state(first) == "PENDING"


@EARLY_AND_LATE
def test_L04_reject_without_requeue_frees_the_lock(shop, worker, witness, over, state, key, name):
    """Celery 5.7 stores FAILURE for it; 5.6 stores nothing."""
    task = getattr(shop, name)
    first = task.delay(key, "reject")
    if CELERY_57:
        with pytest.raises(Reject):
            first.get(timeout=30)
    eventually(lambda: witness.count("end", key))
    over(task, runs=1)
    assert state(first) == ("FAILURE" if CELERY_57 else "PENDING")


@EARLY_AND_LATE
def test_L04_a_soft_time_limit_frees_the_lock(shop, worker, over, key, name):
    task = getattr(shop, name)
    with pytest.raises(SoftTimeLimitExceeded):
        task.apply_async((key, "hang"), soft_time_limit=1).get(timeout=30)
    over(task, runs=1)


@pytest.mark.parametrize("name", ["ends_autoretried_by", "ends_late_autoretried_by"])
def test_L04_the_last_failure_of_an_autoretried_task_frees_the_lock(shop, worker, witness, key, name):
    task = getattr(shop, name)
    with pytest.raises(ValueError, match="L04"):
        task.delay(key, "exception always").get(timeout=30)
    eventually(lambda: held.free(task, key))
    assert witness.count("start", key) == 2
    again = task.delay(key, "exception always")
    assert not again.duplicate
    with pytest.raises(ValueError, match="L04"):
        again.get(timeout=30)
    assert not [start for start in witness.overlaps() if start["key"] == key]


@EARLY_AND_LATE
def test_L04_a_retry_beyond_max_retries_frees_the_lock(shop, worker, witness, key, name):
    task = getattr(shop, name)
    with pytest.raises(MaxRetriesExceededError):
        task.delay(key, "retry always").get(timeout=30)
    eventually(lambda: held.free(task, key))
    assert witness.count("start", key) == 2
    again = task.delay(key, "retry always")
    assert not again.duplicate
    with pytest.raises(MaxRetriesExceededError):
        again.get(timeout=30)
    assert not [start for start in witness.overlaps() if start["key"] == key]


@pytest.mark.parametrize("name", ["ends_by", "ends_late_acked_by"])
def test_L05_a_hard_time_limit_frees_the_lock_where_celery_acknowledges(shop, worker, over, key, name):
    task = getattr(shop, name)
    with pytest.raises(TimeLimitExceeded):
        task.apply_async((key, "hang"), time_limit=1).get(timeout=30)
    over(task, runs=1)


def test_L05_a_hard_time_limit_keeps_the_lock_where_celery_redelivers(shop, worker, kept, over, key):
    kept(shop.ends_late_requeued_by, "hang", lambda pid: None, hop=0, time_limit=2)
    over(shop.ends_late_requeued_by, runs=2)


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


@EARLY_AND_LATE
@pytest.mark.parametrize("how", ["retry when told", "retry, and go on when told"])
def test_L06_a_retry_keeps_the_lock(shop, worker, kept, over, key, name, how):
    """Also one with ``throw=False``, which lets the body go on, and so has the lock when the body has ended."""
    task = getattr(shop, name)
    kept(task, how, lambda pid: shop.open_gate(key, 1), hop=1)
    over(task, runs=2)


@pytest.mark.parametrize("name", ["ends_autoretried_by", "ends_late_autoretried_by"])
def test_L06_an_autoretry_keeps_the_lock(shop, worker, kept, over, key, name):
    task = getattr(shop, name)
    kept(task, "exception when told", lambda pid: shop.open_gate(key, 1), hop=1)
    over(task, runs=2)


@EARLY_AND_LATE
def test_L06_replace_by_the_same_call_keeps_the_lock(shop, worker, kept, over, key, name):
    task = getattr(shop, name)
    kept(task, "replace when told", lambda pid: shop.open_gate(key, 1), hop=1)
    over(task, runs=2)
    assert "was lost" not in worker.logs()


@EARLY_AND_LATE
def test_L06_replace_by_another_call_frees_the_lock_and_takes_the_others(shop, worker, over, key, name):
    task = getattr(shop, name)
    assert task.delay(key, "replace by another").get(timeout=30) == f"{key}, another"
    over(task, runs=1)
    eventually(lambda: held.free(task, f"{key}, another"))
    assert shop.witness.count("start", f"{key}, another") == 1


def test_L07_reject_with_requeue_and_late_acknowledgement_keeps_the_lock(shop, worker, kept, over, key):
    kept(shop.ends_late_by, "requeue when told", lambda pid: shop.open_gate(key, 1), hop=0)
    over(shop.ends_late_by, runs=2)


def test_L07_reject_with_requeue_and_early_acknowledgement_frees_the_lock(shop, worker, witness, over, state, key):
    """Celery has acknowledged the message already: it does not come back, and has no result."""
    first = shop.ends_by.delay(key, "requeue")
    eventually(lambda: witness.count("end", key))
    over(shop.ends_by, runs=1)
    assert state(first) == "PENDING"


@EARLY_AND_LATE
def test_L08_a_call_revoked_before_its_message_arrives_frees_the_lock(shop, worker, over, state, key, name):
    task = getattr(shop, name)
    shop.app.control.revoke(key, destination=[worker.hostname()], reply=True, timeout=30)
    first = task.apply_async((key, "success"), task_id=key)
    over(task, runs=0)
    assert state(first) == "REVOKED"


@EARLY_AND_LATE
def test_L08_a_call_revoked_while_it_waits_for_its_eta_is_freed_when_it_is_discarded(shop, worker, over, key, name):
    task = getattr(shop, name)
    first = task.apply_async((key, "success"), countdown=4)
    twin = task.delay(key)
    assert (twin.duplicate, twin.id) == (True, first.id)
    shop.app.control.revoke(first.id, destination=[worker.hostname()], reply=True, timeout=30)
    with pytest.raises(TaskRevokedError):
        twin.get(timeout=30)
    over(task, runs=0)


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


@EARLY_AND_LATE
def test_L09_an_expired_call_frees_the_lock(shop, worker, over, key, name):
    task = getattr(shop, name)
    first = task.apply_async((key, "success"), countdown=2, expires=1)
    with pytest.raises(TaskRevokedError):
        first.get(timeout=30)
    over(task, runs=0)


@pytest.mark.parametrize("name", ["ends_by", "ends_late_acked_by"])
def test_L11_a_killed_child_frees_the_lock_where_celery_does_not_redeliver(shop, worker, over, key, name):
    task = getattr(shop, name)
    with pytest.raises(WorkerLostError):
        task.delay(key, "sigkill").get(timeout=30)
    over(task, runs=1)


@pytest.mark.parametrize("point", ["start: before", "start: after"])
@pytest.mark.parametrize("name", ["ends_by", "ends_late_acked_by"])
def test_L11_a_child_killed_at_its_start_frees_the_lock(shop, worker, witness, over, key, name, point):
    task = getattr(shop, name)
    witness.redis.hset("die at", key, point)
    with pytest.raises(WorkerLostError):
        task.apply_async((key, "success"), task_id=key).get(timeout=30)
    over(task, runs=0)


@pytest.mark.parametrize("name", ["ends_by", "ends_late_acked_by"])
def test_L11_a_killed_child_does_not_take_along_the_retry_that_it_had_published(shop, worker, witness, over, state, key, name):
    """``retry(throw=False)`` leaves the body running: the retry is in the broker, and runs, however the body ends."""
    task = getattr(shop, name)
    first = task.delay(key, "retry, and die")
    eventually(lambda: witness.count("start", key) == 2)
    assert eventually(lambda: state(first) == "SUCCESS")
    over(task, runs=2)


def test_L12_a_killed_child_keeps_the_lock_where_celery_redelivers(shop, worker, kept, over, key):
    kept(shop.ends_late_by, "hang", lambda pid: os.kill(pid, signal.SIGKILL), hop=0)
    over(shop.ends_late_by, runs=2)


@pytest.mark.parametrize("point", ["start: before", "start: after"])
def test_L12_a_child_killed_at_its_start_keeps_the_lock_where_celery_redelivers(shop, worker, witness, over, key, point):
    witness.redis.hset("die at", key, point)
    assert shop.ends_late_by.apply_async((key, "success"), task_id=key).get(timeout=30) == key
    over(shop.ends_late_by, runs=1)


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
