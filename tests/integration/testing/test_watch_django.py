"""The points of Django, on SQLite and on PostgreSQL."""

import threading
from contextlib import nullcontext, suppress

import pytest
from django.db import IntegrityError, connections, transaction
from support.django_databases import order_model, rows, run
from support.points import COMMIT, ROLLBACK, Died, seeing, sql

from celery_once_more import crash
from celery_once_more.testing.instruments import django as instrument

pytest_plugins = ["support.django_fixtures"]

INSERT = sql("INSERT INTO orders")


@pytest.fixture(autouse=True)
def database(django_database):
    return django_database


class Undo(Exception):
    pass


def watching(dies_at=None):
    return seeing(instrument.watch(), dies_at)


def add(number, using="default"):
    run("INSERT INTO orders VALUES (%s)", using, [number])


# What is a point


def test_without_a_transaction_there_is_a_statement_and_no_commit():
    with watching() as seen:
        add(1)
        rows()
    assert seen == INSERT


def test_a_statement_and_its_commit():
    with watching() as seen, transaction.atomic():
        add(1)
    assert seen == INSERT + COMMIT


def test_a_rollback():
    with watching() as seen, suppress(Undo), transaction.atomic():
        add(1)
        raise Undo
    assert seen == INSERT + ROLLBACK


def test_a_transaction_that_only_reads_has_no_points():
    with watching() as seen:
        with transaction.atomic():
            rows()
        with suppress(Undo), transaction.atomic():
            rows()
            raise Undo
    assert seen == []


def test_savepoints_are_no_points():
    with watching() as seen, transaction.atomic():
        with suppress(Undo), transaction.atomic():
            add(1)
            with transaction.atomic():
                add(2)
            raise Undo
        with transaction.atomic():
            add(3)
    assert seen == INSERT * 3 + COMMIT
    assert rows() == [3]


def test_a_hook_runs_after_the_point_that_follows_the_commit():
    with watching() as seen, transaction.atomic():
        transaction.on_commit(lambda: crash.crash_point("the hook"))
        add(1)
    assert seen == [*INSERT, *COMMIT, ("at", "named", "the hook")]


def test_what_a_hook_writes_has_points_of_its_own():
    with watching() as seen, transaction.atomic():
        transaction.on_commit(lambda: add(2))
        add(1)
    assert seen == INSERT + COMMIT + INSERT


def test_many_rows_in_one_call_are_one_point():
    with watching() as seen, connections["default"].cursor() as cursor:
        cursor.executemany("INSERT INTO orders VALUES (%s)", [[1], [2], [3]])
    assert seen == INSERT


def test_a_model_and_many():
    order = order_model()
    with watching() as seen:
        order.objects.create(number=1)
        assert seen == INSERT
        seen.clear()
        order.objects.bulk_create([order(number=2), order(number=3)])
        assert seen == INSERT + COMMIT
        seen.clear()
        order.objects.filter(number=1).update(number=4)
        order.objects.filter(number=4).delete()
        list(order.objects.all())
    assert seen == sql("UPDATE orders", "DELETE FROM orders") + COMMIT


def test_get_or_create_has_its_own_transaction_only_where_it_creates():
    with watching() as seen:
        for _ in range(2):
            order_model().objects.get_or_create(number=1)
    assert seen == INSERT + COMMIT


def test_every_alias_has_its_own_transaction(database):
    with watching() as seen:
        with transaction.atomic():
            add(1)
            with transaction.atomic(using="other"):
                rows("other")
        with transaction.atomic(using="other"):
            add(2, "other")
    assert seen == (INSERT + COMMIT) * 2


def test_manual_transactions():
    with watching() as seen:
        transaction.set_autocommit(False)
        try:
            add(1)
            transaction.commit()
            rows()
            transaction.commit()
            add(2)
            transaction.rollback()
        finally:
            transaction.set_autocommit(True)
    assert seen == INSERT + COMMIT + INSERT + ROLLBACK


def test_a_connection_that_a_thread_opens_later():
    def body():
        with transaction.atomic():
            add(1)
        connections["default"].close()

    with watching() as seen:
        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
    assert seen == INSERT + COMMIT


def test_a_statement_that_fails_has_no_point_after_it_and_wrote_nothing():
    add(1)
    with watching() as seen, suppress(IntegrityError), transaction.atomic():
        add(1)
    assert seen == INSERT[:1]


def test_a_statement_that_psycopg_composed(database):
    if database == "sqlite":
        return
    from psycopg.sql import SQL, Identifier

    with watching() as seen:
        run(SQL("DELETE FROM {}").format(Identifier("orders")))
    assert seen == sql("DELETE FROM orders")


def test_a_connection_that_is_lost_wrote_nothing_any_more():
    with watching() as seen:
        with suppress(Exception), transaction.atomic():
            add(1)
            connections["default"].close()
        with transaction.atomic():
            rows()
    assert seen == INSERT


# Dying


@pytest.mark.parametrize(("dies_at", "left"), [(1, []), (2, []), (3, []), (4, [1])])
def test_a_death_goes_through_and_nothing_happens_after_it(dies_at, left):
    ran = []

    @transaction.atomic
    def body():
        transaction.on_commit(lambda: ran.append(1))
        add(1)

    with watching(dies_at) as seen, pytest.raises(Died):
        body()
    assert seen[:dies_at] == (INSERT + COMMIT)[:dies_at]
    assert set(seen[dies_at:]) <= set(ROLLBACK)
    assert (rows(), ran) == (left, [])
    with transaction.atomic():
        rows()
    assert ran == []


@pytest.mark.parametrize("dies_at", [3, 4])
def test_a_death_at_a_rollback_goes_through(dies_at):
    def body():
        with transaction.atomic():
            add(1)
            raise Undo

    with watching(dies_at) as seen, pytest.raises(Died):
        body()
    assert seen == (INSERT + ROLLBACK)[:dies_at]
    assert rows() == []


@pytest.mark.parametrize(("dies_at", "left"), [(1, []), (2, [1])])
def test_a_death_without_a_transaction(dies_at, left):
    with watching(dies_at), pytest.raises(Died):
        add(1)
    assert rows() == left


# Afterwards, and what is asked


def test_afterwards_nothing_is_watched_and_nothing_is_left():
    connection = connections["default"]
    before = dict(vars(connection))
    with seeing(nullcontext()) as seen:
        with instrument.watch(), transaction.atomic():
            add(1)
        assert seen == INSERT + COMMIT
        assert connection.execute_wrappers == []
        assert set(vars(connection)) == set(before)
        with transaction.atomic():
            add(2)
    assert seen == INSERT + COMMIT


def test_the_aliases_that_are_in_a_transaction_are_told():
    assert instrument.open_transactions() == []
    with transaction.atomic(using="other"):
        assert instrument.open_transactions() == ["other"]
    assert instrument.open_transactions() == []
