"""The rows L1, L3, L4, L6 to L9 of the design, with both brokers and in every pool: ends that a run tells of itself."""

# ruff: noqa: N802  (a test bears the number of its row)

import pytest
from celery.exceptions import MaxRetriesExceededError, Reject, TaskRevokedError
from support import held
from support.ends import CELERY_57, EARLY_AND_LATE
from support.waiting import eventually


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


@EARLY_AND_LATE
def test_L09_an_expired_call_frees_the_lock(shop, worker, over, key, name):
    task = getattr(shop, name)
    first = task.apply_async((key, "success"), countdown=2, expires=1)
    with pytest.raises(TaskRevokedError):
        first.get(timeout=30)
    over(task, runs=0)
