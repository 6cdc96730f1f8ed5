"""One lock, one strategy, one real worker, from publish to free."""

import pytest
from support.waiting import eventually


def free(task, *args):
    """The lock of this call is free: a publish of it is admitted (and is then taken back)."""
    from celery_once_more.publish import Ticket  # noqa: F401


def test_a_second_publish_is_answered_with_the_holders_id(shop, worker, witness):
    first = shop.late.delay("a", 0.5)
    again = shop.late.delay("a", 0.5, payload="other")
    assert (again.duplicate, again.id) == (True, first.id)
    assert not first.duplicate
    assert first.get(timeout=20) == again.get(timeout=20) == "a"
    assert witness.count("start", "a") == 1


def test_after_the_end_the_next_publish_runs(shop, worker, witness):
    shop.late.delay("a").get(timeout=20)
    again = eventually(lambda: (r := shop.late.delay("a")) and not r.duplicate and r)
    again.get(timeout=20)
    assert witness.count("start", "a") == 2
    assert not witness.overlaps()


@pytest.mark.conf(once_more_lease=2)
def test_a_run_longer_than_three_leases_keeps_its_lock(shop, worker, witness):
    first = shop.late.delay("a", 7)
    eventually(lambda: witness.count("start", "a"))
    answers = []
    while not first.ready():
        answers.append(shop.late.delay("a").duplicate)
    assert len(answers) > 20
    assert answers.count(False) <= 1  # the one, at most, that came after the end
