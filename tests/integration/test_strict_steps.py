"""``strict_args`` of a task that a worker publishes for one that is over: a warning, and nobody's work is undone."""

import logging

import pytest
from celery import chain, chord
from support.apps import unique, working

pytest_plugins = ["support.app_fixtures"]


def parent():
    return {"amount": 1.5}


def step(order):
    return order


def retries(self, order):
    if self.request.retries == 0:
        raise self.retry(countdown=0)
    return order


CANVAS = {
    "a chain's next step": lambda first, strict: chain(first.s(), strict.s()),
    "a chord's body": lambda first, strict: chord([first.s()], strict.s()),
    "the first step of a chord's body": lambda first, strict: chord([first.s()], chain(strict.s(), first.si())),
}


@pytest.mark.parametrize("lock", ["until_executed", None])
@pytest.mark.parametrize("canvas", CANVAS.values(), ids=CANVAS.keys())
def test_a_step_goes_with_a_warning_and_the_finished_task_stays_finished(make_app, caplog, canvas, lock):
    app = make_app()
    first, strict = unique(app, parent, lock=None), unique(app, step, lock=lock, strict_args=True)
    result = canvas(first, strict).delay()
    with working(app):
        assert result.get(timeout=30) in ({"amount": 1.5}, [{"amount": 1.5}])
        while result.parent is not None:
            result = result.parent
            assert result.successful()
    (warning,) = [r for r in caplog.records if "strict_args takes" in r.getMessage()]
    assert warning.levelno == logging.WARNING
    assert f"task {strict.name}[" in warning.getMessage()


def test_a_callback_goes_with_a_warning(make_app, caplog):
    app = make_app()
    first, strict = unique(app, parent, lock=None), unique(app, step, strict_args=True)
    callback = strict.s()
    linked = callback.freeze()
    result = first.apply_async(link=callback)
    with working(app):
        assert result.get(timeout=30) == linked.get(timeout=30) == {"amount": 1.5}
    assert "argument order is a dict; strict_args takes" in caplog.text


def test_a_retry_in_a_worker_is_not_checked_again(make_app, caplog):
    app = make_app()
    task = unique(app, retries, bind=True, strict_args=True)
    result = task.apply_async(({"amount": 1.5},), strict_args=False)
    with working(app):
        assert result.get(timeout=30) == {"amount": 1.5}
    assert "strict_args takes" not in caplog.text
