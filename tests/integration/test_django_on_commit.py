"""Unique tasks that wait for a Django transaction, on SQLite and on PostgreSQL."""

from contextlib import suppress

import pytest
from celery.contrib.django.task import DjangoTask
from django.db import transaction
from support.apps import unique
from support.django_databases import rows, run
from support.lock_db import held
from support.on_commit import BAD_CALLS, broker_away, ship

from celery_once_more.django import UniqueTask

pytest_plugins = ["support.app_fixtures", "support.on_commit_fixtures", "support.django_fixtures"]
pytestmark = pytest.mark.usefixtures("django_database")


def add(number, using="default"):
    run(f"INSERT INTO orders VALUES ({number})", using)


@pytest.fixture
def task(make_app):
    return unique(make_app(), ship, base=UniqueTask)


class Undo(Exception):
    pass


# Commit and rollback


def test_lock_and_message_are_there_after_the_commit_and_not_before(task, sent, locks):
    with transaction.atomic():
        task.delay_on_commit("order_1")
        assert (sent(), held(locks)) == ([], [])
    assert sent() == ["order_1"]
    assert len(held(locks)) == 1


def test_when_the_message_is_sent_another_connection_sees_the_rows(task, at_publish):
    seen = at_publish(lambda: rows("other"))
    with transaction.atomic():
        task.delay_on_commit("order_1")
        add(1)
    assert seen == [[1]]


def test_nothing_at_all_happens_on_rollback(task, broker, locks, told):
    with suppress(Undo), transaction.atomic():
        task.delay_on_commit("order_1")
        raise Undo
    with transaction.atomic():
        pass
    assert broker.empty()
    assert not locks.keys()
    assert told == []


def test_a_savepoint_that_is_rolled_back_takes_its_calls_with_it_and_no_others(task, sent):
    with transaction.atomic():
        task.delay_on_commit("before")
        with suppress(Undo), transaction.atomic():
            task.delay_on_commit("inside")
            with transaction.atomic():
                task.delay_on_commit("deeper, and released")
            raise Undo
        task.delay_on_commit("after")
    assert sent() == ["before", "after"]


def test_a_released_savepoint_waits_for_the_transaction_around_it(task, sent):
    with transaction.atomic():
        with transaction.atomic():
            task.delay_on_commit("inside")
        assert sent() == []
    assert sent() == ["inside"]


def test_a_released_savepoint_is_lost_with_the_transaction_around_it(task, broker, locks):
    with suppress(Undo), transaction.atomic():
        with transaction.atomic():
            task.delay_on_commit("inside")
        raise Undo
    assert broker.empty()
    assert not locks.keys()


def test_without_a_transaction_it_is_published_at_once(task, sent):
    task.delay_on_commit("order_1")
    assert sent() == ["order_1"]


def test_messages_are_sent_in_the_order_of_the_calls(task, sent):
    with transaction.atomic():
        for order in ("c", "a", "b"):
            task.delay_on_commit(order)
    assert sent() == ["c", "a", "b"]


def test_a_call_waits_for_the_database_that_it_names_and_for_no_other(task, sent):
    with transaction.atomic(using="other"):
        task.apply_async_on_commit(("order_1",), using="other")
        with transaction.atomic():
            task.apply_async_on_commit(("order_2",))
        assert sent() == ["order_2"]
    assert sent() == ["order_2", "order_1"]


def test_a_rollback_in_one_database_drops_nothing_that_waits_for_another(task, sent):
    with transaction.atomic(), suppress(Undo), transaction.atomic(using="other"):
        task.delay_on_commit("order_1")
        task.apply_async_on_commit(("order_2",), using="other")
        raise Undo
    assert sent() == ["order_1"]


def test_what_was_said_of_the_message_reaches_it(task, broker):
    with transaction.atomic():
        task.apply_async_on_commit(("order_1",), {"note": "x"}, task_id="ship_1", queue="slow")
    (message,) = broker.waiting("slow")
    assert message["headers"]["id"] == "ship_1"


def test_a_duplicate_is_dropped_at_its_commit(task, sent, told):
    with transaction.atomic():
        task.delay_on_commit("order_1")
        task.delay_on_commit("order_1")
    assert sent() == ["order_1"]
    assert [name for name, _, _ in told] == ["lock_acquired", "lock_conflict"]


# What goes wrong in the hook


def test_what_fails_in_the_hook_reaches_neither_the_other_hooks_nor_the_committer(failing, task):
    ran = []
    fails = failing.task(UniqueTask)
    with transaction.atomic():
        transaction.on_commit(lambda: ran.append("first"))
        fails.delay_on_commit("order_1")
        transaction.on_commit(lambda: ran.append("last"))
        add(1)
    assert ran == ["first", "last"]
    assert rows() == [1]


def test_what_fails_in_the_hook_is_logged_and_signalled(failing, told):
    fails = failing.task(UniqueTask)
    with transaction.atomic():
        fails.apply_async_on_commit(("order_1",), task_id="ship_1")
    (line,) = failing.lines()
    assert line.levelno == failing.level
    assert f"task {fails.name}[ship_1]" in line.getMessage()
    assert failing.words in line.getMessage()
    assert [(name, what["task_id"]) for name, _, what in told] == [(failing.signal, "ship_1")]


def test_without_a_transaction_a_failure_is_logged_as_well_and_not_raised(failing):
    failing.task(UniqueTask).delay_on_commit("order_1")
    assert len(failing.lines()) == 1


def test_a_lock_does_not_stay_when_the_broker_is_down_at_the_commit(make_app, nowhere, locks):
    fails = unique(make_app(**broker_away(nowhere)), ship, base=UniqueTask)
    with transaction.atomic():
        fails.delay_on_commit("order_1")
    assert held(locks) == []


# What is wrong with the call


@pytest.mark.parametrize(("args", "options", "error", "words"), BAD_CALLS)
def test_a_wrong_call_is_refused_where_it_is_written(task, broker, locks, args, options, error, words):
    with transaction.atomic(), pytest.raises(error, match=words):
        task.apply_async_on_commit(args, **options)
    assert broker.empty()
    assert not locks.keys()


def test_manual_transaction_management_is_refused_as_django_refuses_it(task):
    transaction.set_autocommit(False)
    try:
        with pytest.raises(transaction.TransactionManagementError):
            task.delay_on_commit("order_1")
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


def test_a_change_of_the_arguments_after_the_call_does_not_reach_the_message(task, sent):
    order = {"number": 1, "lines": ["a"]}
    with transaction.atomic():
        task.delay_on_commit(order)
        order["lines"].append("b")
    assert sent() == [{"number": 1, "lines": ["a"]}]


# Eager mode, and Celery's own class


def test_in_eager_mode_the_body_runs_at_the_commit_and_asks_no_store(make_app, nowhere):
    ran = []

    def note(order):
        ran.append(order)

    task = unique(make_app(task_always_eager=True, once_more_redis_url=nowhere), note, base=UniqueTask)
    with transaction.atomic():
        task.delay_on_commit("order_1")
        assert ran == []
    assert ran == ["order_1"]


def test_in_eager_mode_an_error_of_the_body_reaches_the_committer_where_the_setting_says_so(make_app):
    def fails(order):
        raise Undo

    task = unique(make_app(task_always_eager=True, task_eager_propagates=True), fails, base=UniqueTask)
    with pytest.raises(Undo), transaction.atomic():
        task.delay_on_commit("order_1")


class Project(DjangoTask):
    pass


@pytest.mark.parametrize(
    "bases", [(UniqueTask, DjangoTask), (DjangoTask, UniqueTask), (Project, UniqueTask), (UniqueTask, Project)]
)
def test_mixed_with_celerys_django_task_in_either_order_no_conflict_is_raised(make_app, sent, bases):
    task = unique(make_app(), ship, base=type("Mixed", bases, {}), on_conflict="raise")
    with transaction.atomic():
        for _ in range(2):
            task.delay_on_commit("order_1")
            task.apply_async_on_commit(("order_1",))
    assert sent() == ["order_1"]


def test_a_task_with_a_method_of_its_own_keeps_it(make_app):
    class Own(DjangoTask):
        def delay_on_commit(self, *args):
            return f"own {args}"

    class Mixed(Own, UniqueTask):
        pass

    assert unique(make_app(), ship, base=Mixed).delay_on_commit(1) == "own (1,)"
