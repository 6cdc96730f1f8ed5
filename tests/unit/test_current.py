"""``current_lock`` where there is none: null, and nothing is asked."""

import pytest
from celery import Task

from celery_once_more import UniqueTask, current_lock


def looked():
    current_lock.check()
    return bool(current_lock), current_lock.digest, current_lock.fencing_token, current_lock.remaining, repr(current_lock)


NULL = (False, None, None, 0.0, "<current_lock: none>")


def test_outside_of_tasks_there_is_no_lock():
    assert looked() == NULL


@pytest.mark.parametrize(
    "options", [{"base": Task}, {"base": UniqueTask}, {"base": UniqueTask, "lock": "until_executed"}], ids=str
)
def test_in_a_plain_task_and_in_eager_mode_there_is_no_lock(app, store, options):
    task = app.task(shared=False, name="unit.looks", **options)(looked)
    assert task.apply().get() == NULL
    assert task() == NULL
    assert store.acts == []
