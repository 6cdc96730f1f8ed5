"""A publish that waits for a commit, without a database: what is refused at once, and what is kept until then."""

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from celery_once_more import ConfigurationError, UniqueTask, on_commit


def settle(event_id, payload=None):
    return event_id


def test_a_check_asks_no_store(task, store):
    on_commit.prepare(task(settle), ("evt",), None, {})
    assert store.acts == []


def test_what_is_returned_publishes_under_one_id_for_good(task, store):
    publish = on_commit.prepare(task(settle), ("evt",), None, {"task_id": None})
    publish()
    publish()
    assert len({ticket.task_id for ticket in store.tickets}) == 1


def test_arguments_are_those_of_the_call(task, store):
    bound = task(settle)
    payload = {"lines": ["a"]}
    later = on_commit.prepare(bound, ("evt",), {"payload": payload}, {})
    payload["lines"].append("b")
    later()
    bound.apply_async(("evt",), {"payload": {"lines": ["a"]}})
    first, second = store.tickets
    assert first.digest == second.digest


def test_a_lock_store_that_nobody_named_is_refused_at_once(task):
    with pytest.raises(ConfigurationError, match="set once_more_redis_url"):
        on_commit.prepare(task(settle), ("evt",), None, {})


def test_a_call_without_a_lock_needs_no_lock_store(task):
    on_commit.prepare(task(settle), ("evt",), None, {"lock": None})()


def test_without_typing_arguments_that_do_not_fit_are_left_to_the_worker(task, store):
    on_commit.prepare(task(settle, typing=False), ("evt", 1, 2, 3), None, {})


def test_an_argument_that_cannot_be_copied_is_refused_at_once(task, store):
    with pytest.raises(TypeError):
        on_commit.prepare(task(settle, lock_args=["event_id"]), ("evt", (n for n in "ab")), None, {})


def test_a_plain_task_is_published_and_checked_as_well(app):
    plain = app.task(settle)
    on_commit.prepare(plain, ("evt",), None, {})()
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        on_commit.prepare(plain, (), None, {})


def test_the_soft_time_limit_of_the_run_that_commits_is_not_swallowed(task, store):
    class Slow(UniqueTask):
        def apply_async(self, *args, **options):
            raise SoftTimeLimitExceeded

    publish = on_commit.prepare(task(settle, base=Slow), ("evt",), None, {})
    with pytest.raises(SoftTimeLimitExceeded):
        publish()
