"""What a pass of the reaper reports, and how its task is known to an app. What it frees is the store's matter."""

import json
import logging
import pickle

import pytest
from celery import Celery, Task, _state

from celery_once_more import StoreUnavailable, reaper, signals
from celery_once_more.locks import Lapsed, Reaped
from celery_once_more.locks.keys import BUCKETS
from celery_once_more.reaper import Counts, ReapReport, reap


def lapsed(task, task_id, phase="running"):
    return Lapsed(task=task, digest="d" * 22, task_id=task_id, phase=phase)


REAPED = Reaped(
    lapsed=[lapsed("shop.settle", "a"), lapsed("shop.settle", "b", "waiting"), lapsed("shop.ship", "c")],
    foreign=["e" * 22],
    kept=["shop.ship"] * 4,
)


@pytest.fixture
def reaps(store):
    """Let the store answer ``answer``; what it was asked is in ``asked``."""
    store.asked, store.frees = [], REAPED

    def ask(buckets, *, limit):
        store.asked.append((list(buckets), limit))
        if isinstance(store.frees, Exception):
            raise store.frees
        return store.frees

    store.reap = ask
    return store


def test_a_report_counts_by_task(app, reaps):
    report = reap(app)
    assert report == ReapReport(
        tasks={"shop.settle": Counts(lapsed=2), "shop.ship": Counts(lapsed=1, kept=4)}, unreadable=["e" * 22]
    )
    assert (report.lapsed, report.orphaned) == (3, 0)


def test_a_pass_that_found_nothing_reports_nothing(app, reaps):
    reaps.frees = Reaped()
    assert reap(app).as_dict() == {"lapsed": 0, "orphaned": 0, "expired": 0, "kept": 0, "unreadable": [], "tasks": {}}


def test_a_report_is_plain_json(app, reaps):
    told = reap(app).as_dict()
    assert json.loads(json.dumps(told)) == told
    assert told == {
        "lapsed": 3,
        "orphaned": 0,
        "expired": 0,
        "kept": 4,
        "unreadable": ["e" * 22],
        "tasks": {
            "shop.settle": {"lapsed": 2, "orphaned": 0, "expired": 0, "kept": 0},
            "shop.ship": {"lapsed": 1, "orphaned": 0, "expired": 0, "kept": 4},
        },
    }


def test_a_report_survives_pickling(app, reaps):
    report = reap(app)
    assert pickle.loads(pickle.dumps(report)) == report


def test_a_pass_looks_at_every_bucket_and_frees_no_more_than_the_setting_says(app, reaps):
    app.conf.once_more_reap_limit = 7
    reap(app)
    assert reaps.asked == [(list(range(BUCKETS)), 7)]


def test_a_pass_can_look_at_a_few_buckets(app, reaps):
    reap(app, buckets=[3, 4])
    assert reaps.asked == [([3, 4], 1000)]


def test_everything_freed_is_signalled_and_logged(app, reaps, caplog):
    heard = []

    def receiver(sender=None, task_id=None, **_):
        heard.append((sender, task_id))

    signals.lock_reaped.connect(receiver)
    try:
        reap(app)
    finally:
        signals.lock_reaped.disconnect(receiver)
    assert heard == [("shop.settle", "a"), ("shop.settle", "b"), ("shop.ship", "c")]
    assert sum("was freed" in record.getMessage() for record in caplog.records) == 3


def test_a_record_that_is_not_ours_is_an_error_in_the_log_that_names_it(app, reaps, caplog):
    reap(app)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "e" * 22 in record.getMessage()
    assert "left alone" in record.getMessage()


def test_a_store_that_does_not_answer_is_the_callers_to_know(app, reaps):
    reaps.frees = StoreUnavailable("reap: TimeoutError")
    with pytest.raises(StoreUnavailable):
        reap(app)


# the task in the beat schedule


def test_the_task_returns_the_report_as_json(app, reaps):
    reaper.register(app)
    assert app.tasks["celery_once_more.reap"].apply().get() == reap(app).as_dict()


def test_the_task_is_a_plain_one_whose_passes_do_not_pile_up():
    app = Celery("unit", broker="memory://", set_as_current=False)
    reaper.register(app)
    task = app.tasks[reaper.TASK_NAME]
    assert (task.name, task.expires) == ("celery_once_more.reap", 60)
    assert task.__class__.__mro__[1] is Task


def test_the_task_of_one_app_is_unknown_to_another(monkeypatch):
    monkeypatch.setattr(_state, "_on_app_finalizers", set())  # what other tests of this process share with every app
    first, second = (Celery(f"unit{n}", broker="memory://", set_as_current=False) for n in range(2))
    reaper.register(first)
    second.finalize()
    assert reaper.TASK_NAME not in second.tasks
