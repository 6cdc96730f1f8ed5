"""What is Django's own about reservations: atomic blocks, autocommit, its connections, its tests."""

import threading
import unittest
from contextlib import suppress

import pytest
from django.core.handlers.base import BaseHandler
from django.db import connection, transaction
from django.test import RequestFactory, TestCase
from support.django_databases import database, databases, run
from support.django_reservations import Undo, do, states

from celery_once_more.reservations import REFUSE, REPEAT, AlreadyDone, OpenTransaction, ReservationError, Reservations
from celery_once_more.reservations.row import TABLE

pytest_plugins = ["support.django_reservation_fixtures"]


# Transactions that the caller has open


def test_a_run_in_an_atomic_block_is_refused_and_says_why(reservations):
    ran = []
    with transaction.atomic():
        with pytest.raises(OpenTransaction, match="a rollback of it would erase the evidence"):
            reservations.run("a", ran.append, on_unknown=REPEAT, lease=60)
        with transaction.atomic(), pytest.raises(OpenTransaction), reservations.reserve("a", on_unknown=REPEAT, lease=60):
            ran.append("reserved")
    assert (ran, states()) == ([], [])
    assert do(reservations) == "done"


def test_a_run_in_a_view_with_atomic_requests_is_refused(one, reservations):
    with databases(default={**one, "ATOMIC_REQUESTS": True}):
        view = BaseHandler().make_view_atomic(lambda request: do(reservations))
        with pytest.raises(OpenTransaction):
            view(RequestFactory().get("/"))
        bare = transaction.non_atomic_requests(lambda request: do(reservations))
        assert BaseHandler().make_view_atomic(bare)(RequestFactory().get("/")) == "done"


def test_a_run_without_autocommit_is_refused(reservations):
    transaction.set_autocommit(False)
    try:
        with pytest.raises(OpenTransaction):
            do(reservations)
    finally:
        transaction.set_autocommit(True)
    assert do(reservations) == "done"


def test_a_database_that_never_commits_by_itself_is_refused_before_it_is_connected(one, reservations):
    with databases(default={**one, "AUTOCOMMIT": False}), pytest.raises(OpenTransaction):
        do(reservations)
    assert states() == []


def test_transactions_of_another_alias_or_thread_are_no_matter(reservations):
    begun, go_on = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            begun.set()
            go_on.wait(30)
        connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait(30)
    with transaction.atomic(using="other"):
        assert do(reservations) == "done"
    go_on.set()
    thread.join()


def test_the_effect_may_use_the_database(reservations):
    def effect(reservation):
        with transaction.atomic(durable=True):
            run("SELECT 1")
        return do(reservations, "within")

    assert reservations.run("a", effect, on_unknown=REPEAT, lease=60) == "done"
    with pytest.raises(AlreadyDone), reservations.reserve("within", on_unknown=REPEAT, lease=60):
        pass


def test_an_effect_that_leaves_a_transaction_open_is_not_completed_in_it(reservations):
    try:
        with pytest.raises(ReservationError, match="transaction open on 'default'"):
            reservations.run("a", lambda r: transaction.set_autocommit(False), on_unknown=REFUSE, lease=60)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert states() == ["running"]


def test_care_may_be_part_of_the_callers_transaction(reservations):
    with pytest.raises(ZeroDivisionError):
        reservations.run("a", lambda r: 1 / 0, on_unknown=REFUSE, lease=60)
    with suppress(Undo), transaction.atomic():
        assert [one.key for one in reservations.unknowns()] == ["a"]
        reservations.resolve("a", done="by a person")
        assert reservations.unknowns() == []
        raise Undo
    assert [one.key for one in reservations.unknowns()] == ["a"]
    with transaction.atomic():
        reservations.resolve("a", done="by a person")
        assert reservations.purge() == 0
    assert do(reservations) == "by a person"


def test_care_may_be_part_of_a_transaction_by_hand(reservations):
    if connection.vendor == "sqlite":
        pytest.skip("Python's sqlite3 commits at the end of a savepoint there")
    with pytest.raises(ZeroDivisionError):
        reservations.run("a", lambda r: 1 / 0, on_unknown=REFUSE, lease=60)
    transaction.set_autocommit(False)
    try:
        reservations.resolve("a", done="by a person")
        transaction.rollback()
        assert [one.key for one in reservations.unknowns()] == ["a"]
        reservations.resolve("a", done="by a person")
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert do(reservations) == "by a person"


# Its connection


def test_a_connection_is_kept_whatever_its_age(reservations):
    do(reservations)
    kept = connection.connection
    do(reservations, "b")
    assert connection.connection is kept is not None


def test_the_isolation_of_the_programs_own_transactions_stays_as_it_is(request, tmp_path):
    from django.db.backends.postgresql.psycopg_any import IsolationLevel

    one = database("postgresql", request, tmp_path)
    with databases(default={**one, "OPTIONS": {"isolation_level": IsolationLevel.SERIALIZABLE}}):
        reservations = Reservations.django()
        reservations.create_table()
        levels = []

        def note(*_):
            with transaction.atomic():
                levels.extend(run("SHOW transaction_isolation"))

        def save(*_):
            note()
            transaction.on_commit(note)

        reservations.run("a", note, on_unknown=REPEAT, lease=60, save=save)
        note()
        run(f"DROP TABLE {TABLE}")
        run("DROP TABLE django_migrations")
    assert levels == [(level,) for level in ("serializable", "read committed", "serializable", "serializable")]


# Django's tests


def test_in_a_test_case_of_django_it_is_as_outside_and_nothing_stays(reservations):
    class Inner(TestCase):
        def test_a_run(self):
            assert do(reservations) == do(reservations) == "done"
            with pytest.raises(ZeroDivisionError):
                reservations.run("b", lambda r: 1 / 0, on_unknown=REFUSE, lease=60)
            assert states() == ["done", "unknown"]

        def test_an_open_transaction(self):
            with transaction.atomic(), pytest.raises(OpenTransaction):
                do(reservations)

        def test_once(self):
            with pytest.raises(ReservationError):
                reservations.once("a")
            with transaction.atomic():
                assert [reservations.once("a"), reservations.once("a")] == [True, False]

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Inner).run(result)
    assert (result.testsRun, result.failures + result.errors) == (3, [])
    assert states() == []
