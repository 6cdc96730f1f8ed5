"""The whole table of what becomes of a message whose run died; that it is Celery's own, real workers show (acceptance)."""

import itertools

import pytest
from celery import VERSION, Celery

from celery_once_more.testing.redelivery import Options, decide, fate

CELERY_57 = VERSION >= (5, 7)
ON_AND_OFF = (True, False)
#: retry_on_worker_lost, max_retries, retries behind the message
NO_RETRY = (False, 3, 0)
LEFT, WITHOUT_END, USED_UP = (True, 3, 2), (True, None, 99), (True, 3, 3)
NOT_ONE = (True, 0, 0)
#: child's death: acks_late, reject_on_worker_lost, acks_on_failure, retries -> fate, and a word of why
CHILD = {
    **{(*acks, some): ("retried", "retry_on_worker_lost is on")
       for acks in itertools.product(ON_AND_OFF, repeat=3) for some in (LEFT, WITHOUT_END)},
    **{(False, *acks, NO_RETRY): ("lost", "acks_late=True with reject_on_worker_lost=True would")
       for acks in itertools.product(ON_AND_OFF, repeat=2)},
    **{(False, *acks, none): ("lost", "used up (max_retries=")
       for acks in itertools.product(ON_AND_OFF, repeat=2) for none in (USED_UP, NOT_ONE)},
    **{(True, *acks, none): ("lost", "whatever reject_on_worker_lost says")
       for acks in itertools.product(ON_AND_OFF, repeat=2) for none in (USED_UP, NOT_ONE)},
    (True, True, True, NO_RETRY): ("redelivered", "gives the message back"),
    (True, True, False, NO_RETRY): ("redelivered", "gives the message back"),
    (True, False, True, NO_RETRY): ("lost", "reject_on_worker_lost=True would"),
    (True, False, False, NO_RETRY): ("lost", "rejects the message of a lost process for good"),
}  # fmt: skip


def options(acks_late, reject, ack, some):
    return Options(acks_late=acks_late, reject_on_worker_lost=reject, acks_on_failure=ack, retry_on_worker_lost=some[0],
                   max_retries=some[1])  # fmt: skip


def test_the_table_of_a_childs_death_has_every_row():
    assert set(CHILD) == set(
        itertools.product(ON_AND_OFF, ON_AND_OFF, ON_AND_OFF, (NO_RETRY, LEFT, WITHOUT_END, USED_UP, NOT_ONE))
    )


@pytest.mark.parametrize("row", CHILD)
def test_a_childs_death(row):
    told = decide(options(*row), "child", retries=row[3][2])
    kind, word = CHILD[row]
    assert told.kind == kind
    assert word in told.why


@pytest.mark.parametrize("row", CHILD)
def test_of_a_machines_death_late_acknowledgement_alone_decides(row):
    told = decide(options(*row), "machine", retries=row[3][2])
    assert told.kind == ("redelivered" if row[0] else "lost")
    assert ("acks_late is on" if row[0] else "acks_late=True would") in told.why


@pytest.fixture
def app():
    app = Celery("unit", set_as_current=False)
    yield app
    app.close()


def work():
    """Nothing."""


def bound(app, **more):
    return app.task(work, name=f"unit.{len(app.tasks)}", shared=False, lazy=False, **more)


def test_a_plain_task_is_lost_whoever_dies(app):
    assert {fate(bound(app), death).kind for death in ("child", "machine")} == {"lost"}


def test_the_settings_of_the_app_count_where_the_task_says_nothing(app):
    app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)
    assert fate(bound(app), "child").kind == "redelivered"


def test_the_task_goes_before_the_settings_of_the_app(app):
    app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)
    assert fate(bound(app, reject_on_worker_lost=False), "child").kind == "lost"


def test_the_option_of_failures_and_timeouts_counts(app):
    told = fate(bound(app, acks_late=True, acks_on_failure_or_timeout=False), "child")
    assert "for good" in told.why


def test_an_option_counts_only_where_celery_knows_it(app):
    told = fate(bound(app, acks_late=True, acks_on_failure=False), "child")
    assert ("for good" in told.why) is CELERY_57
    told = fate(bound(app, retry_on_worker_lost=True), "child")
    assert told.kind == ("retried" if CELERY_57 else "lost")


def test_how_many_retries_are_left_is_counted_from_the_message(app):
    task = bound(app, acks_late=True, reject_on_worker_lost=True, retry_on_worker_lost=True, max_retries=1)
    kinds = [fate(task, "child", retries=retries).kind for retries in (0, 1)]
    assert kinds == (["retried", "lost"] if CELERY_57 else ["redelivered", "redelivered"])
