"""The reaper's evidence on a Redis broker: a waiting holder whose message is nowhere is freed, and no other.

Each test of what is kept has an orphan beside it: when that one is freed, the looks have been made.
"""

import logging
import threading

import pytest
from support import held
from support.apps import unique
from support.orphans import never_sent, passes_until_freed, purge
from support.waiting import eventually

from celery_once_more.locks import Place
from celery_once_more.orphans import LOOKS
from celery_once_more.reaper import reap
from celery_once_more.runtime import runtime

pytest_plugins = ["support.app_fixtures"]


@pytest.fixture
def app(make_app):
    return make_app(once_more_lease=1)


def settle(key):
    return key


@pytest.fixture
def task(app):
    return unique(app, settle, name="app.task")


def test_a_purged_message_is_missed_twice_and_then_its_lock_is_free(task, told, caplog):
    first = task.delay("evt")
    purge(task)
    began = held.now_ms(task)
    assert reap(task.app).orphaned == 0
    assert task.delay("evt").id == first.id
    assert passes_until_freed(task, "evt") == 1
    assert held.now_ms(task) >= began + 1000
    (what,) = [(sender, what) for name, sender, what in told if name == "lock_reaped"]
    assert what == ("app.task", {"task_id": first.id, "digest": held.digest(task, "evt"), "phase": "waiting"})
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert first.id in line
    assert not task.delay("evt").duplicate


def test_the_lock_of_a_publisher_that_died_before_it_sent_is_freed(task):
    never_sent(task, "evt")
    assert passes_until_freed(task, "evt") == 1


def test_a_report_counts_an_orphan_by_its_task(task):
    never_sent(task, "evt")
    reports = []
    while not sum(report.orphaned for report in reports):
        reports.append(reap(task.app))
    assert reports[0].as_dict()["tasks"] == {"app.task": {"lapsed": 0, "orphaned": 0, "expired": 0, "kept": 1}}
    assert reports[-1].as_dict()["tasks"] == {"app.task": {"lapsed": 0, "orphaned": 1, "expired": 0, "kept": 0}}


@pytest.mark.parametrize("priority", [None, 0, 3, 4, 9])
def test_a_message_in_its_queue_is_found_whatever_its_priority(task, priority):
    first = task.apply_async(("evt",), priority=priority)
    never_sent(task, "orphan")
    passes_until_freed(task, "orphan")
    assert held.holder(task, "evt").task_id == first.id


def test_a_message_is_looked_for_in_the_queue_that_it_went_to(task, app):
    first = task.apply_async(("evt",), queue="other")
    ticket = never_sent(task, "orphan", queue="other")
    elsewhere = task.apply_async(("orphan",), task_id="never sent")  # of the same id, in another queue
    passes = 0
    while not reap(app).orphaned:
        passes += 1
    assert passes
    assert runtime(app).store.look(ticket, run="")[0] == "none"
    assert held.holder(task, "orphan").task_id == elsewhere.id
    assert task.apply_async(("evt",), queue="other").id == first.id


@pytest.mark.parametrize(
    "transport",
    [{"global_keyprefix": "shop-"}, {"unacked_key": "taken"}, {"priority_steps": [0, 5], "sep": "|"}],
    ids=["key prefix", "unacked key", "priority steps"],
)
def test_a_queue_is_found_where_the_transport_options_put_it(make_app, transport):
    app = make_app(once_more_lease=1, broker_transport_options=transport)
    task = unique(app, settle, name="app.task")
    task.apply_async(("evt",), priority=5)
    with app.connection_for_read() as connection:
        task.delay("taken")
        queue = app.amqp.queues["celery"].bind(connection.default_channel)
        taken = [queue.get() for _ in range(2)]
        assert all(taken)
        never_sent(task, "orphan")
        passes_until_freed(task, "orphan")
        assert held.holder(task, "evt")
        assert held.holder(task, "taken")
        for message in taken:
            message.ack()
        passes_until_freed(task, "taken")


def test_what_its_eta_keeps_is_not_missed_before(task):
    task.apply_async(("evt",), countdown=600)
    never_sent(task, "orphan")
    purge(task)
    passes_until_freed(task, "orphan")
    assert held.holder(task, "evt")


@pytest.mark.parametrize("place", [None, "0000celery"], ids=["nowhere", "another broker"])
def test_what_cannot_be_looked_for_here_is_kept(task, app, place):
    ticket = never_sent(task, "evt")
    rt = runtime(app)
    rt.store.release(ticket)
    rt.store.acquire(ticket, wait_ms=60_000, place=place and Place(name=place))
    never_sent(task, "orphan")
    passes_until_freed(task, "orphan")
    assert held.holder(task, "evt")


def test_a_message_that_was_found_in_between_is_to_be_missed_twice_again(task, app):
    """It was on its way when the first look was made."""
    never_sent(task, "evt")
    reap(app)
    first = held.now_ms(task)
    task.apply_async(("evt",), task_id="never sent", lock=None)
    eventually(lambda: held.now_ms(task) > first + 1000)
    assert reap(app).orphaned == 0
    purge(task)
    began = held.now_ms(task)
    assert passes_until_freed(task, "evt") == 1
    assert held.now_ms(task) >= began + 1000


def test_a_call_that_has_started_since_the_first_look_keeps_its_lock(task, app):
    ticket = never_sent(task, "evt")
    never_sent(task, "orphan")
    reap(app)
    assert runtime(app).store.start(ticket, run="run", lease_ms=60_000, redelivered=False).verdict == "run"
    passes_until_freed(task, "orphan")
    assert held.holder(task, "evt").phase == "R"


def test_a_call_that_waits_for_its_next_message_since_the_first_look_is_looked_for_anew(task, app):
    rt = runtime(app)
    ticket = never_sent(task, "evt")
    never_sent(task, "orphan")
    reap(app)
    rt.store.start(ticket, run="run", lease_ms=60_000, redelivered=False)
    assert rt.store.requeue(ticket, run="run", hop=1, wait_ms=60_000, place=rt.place("celery", 600))
    passes_until_freed(task, "orphan")
    assert held.holder(task, "evt").hops == [1, 0]


def test_a_retry_whose_message_was_purged_is_an_orphan_as_well(task, app):
    rt = runtime(app)
    ticket = never_sent(task, "evt")
    rt.store.start(ticket, run="run", lease_ms=60_000, redelivered=False)
    assert rt.store.requeue(ticket, run="run", hop=1, wait_ms=60_000, place=rt.place("celery"))
    assert passes_until_freed(task, "evt") == 1


def test_a_pass_that_dies_before_it_frees_leaves_the_rest_to_the_next_ones(task, app, monkeypatch):
    never_sent(task, "evt")
    store = type(runtime(app).store)
    with monkeypatch.context() as patch:
        patch.setattr(store, "release_all", lambda self, waiting: (waiting and pytest.fail("dies here")) or [])
        with pytest.raises(pytest.fail.Exception, match="dies here"):
            passes_until_freed(task, "evt")
    assert passes_until_freed(task, "evt") == 1


def test_two_passes_at_once_free_each_orphan_once(task, app):
    for n in range(200):
        never_sent(task, n, task_id=f"never sent {n}")
    freed, threads = [], []

    def passes():
        while any(not held.free(task, n) for n in range(200)):
            freed.append(reap(app).orphaned)

    for _ in range(2):
        threads.append(threading.Thread(target=passes))
        threads[-1].start()
    for thread in threads:
        thread.join(60)
    assert sum(freed) == 200


def test_a_pass_frees_no_more_than_the_setting_says(make_app):
    app = make_app(once_more_lease=1, once_more_reap_limit=7)
    task = unique(app, settle, name="app.task")
    for n in range(20):
        never_sent(task, n)
    freed = []
    while sum(freed) < 20:
        freed.append(reap(app).orphaned)
    assert max(freed) == 7


def test_of_more_locks_than_a_pass_looks_at_every_orphan_is_found_in_time(task):
    for n in range(LOOKS + LOOKS // 2):
        never_sent(task, n, task_id=f"never sent {n}")
    freed = 0
    while freed < LOOKS + LOOKS // 2:
        freed += reap(task.app).orphaned
    assert not held.holder(task, 0)
