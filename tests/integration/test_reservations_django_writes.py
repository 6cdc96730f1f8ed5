"""What callers write in Django's transactions beside a reservation: markers, rows of their own, the writes of a completion."""

from contextlib import suppress

import pytest
from django.db import IntegrityError, connection, connections, transaction
from support.django_databases import database, databases
from support.django_reservations import Undo, do, states

from celery_once_more.reservations import REPEAT, OpenTransaction, ReservationError, Reservations

pytest_plugins = ["support.django_reservation_fixtures"]


# The writes of a completion


def test_the_writes_of_a_completion_are_in_an_atomic_block(reservations, rows):

    def save(tx, result):
        assert tx is connections["default"]
        rows.Order.objects.create(number=result)
        with pytest.raises(transaction.TransactionManagementError):
            transaction.commit()

    with pytest.raises(OpenTransaction):
        reservations.run("b", lambda r: 1, on_unknown=REPEAT, lease=60, save=lambda tx, result: do(reservations, "c"))
    reservations.run("a", lambda r: 7, on_unknown=REPEAT, lease=60, save=save)
    assert list(rows.Order.objects.values_list("number", flat=True)) == [7]


def test_a_completion_is_not_rolled_back_without_a_word(reservations, rows):
    """As Django does where an error of the database was caught inside its block."""
    rows.Order.objects.create(number=7)

    def swallow(tx, result):
        try:
            rows.Order.objects.create(number=result)
        except IntegrityError:
            pass

    def wrap(tx, result):
        try:
            with transaction.atomic():
                rows.Order.objects.create(number=result)
        except IntegrityError:
            pass

    with pytest.raises(ReservationError, match=r"in an atomic\(\) block of its own"):
        reservations.run("a", lambda r: 7, on_unknown=REPEAT, lease=60, save=swallow)
    assert states() == ["unknown"]
    assert reservations.run("a", lambda r: 7, on_unknown=REPEAT, lease=60, save=wrap) == 7
    assert states() == ["done"]


# once


def test_the_transaction_is_named_in_every_way_that_django_has(reservations):
    for number, tx in enumerate([None, "default", connection, connections["default"]]):
        with transaction.atomic():
            assert [reservations.once(number, tx=tx), reservations.once(number, tx=tx)] == [True, False]
    with transaction.atomic():
        assert not reservations.once(0)
    with transaction.atomic(using="other"):
        assert not reservations.once(0, tx="other")
        assert reservations.once("other's", tx=connections["other"])
    assert len(states()) == 5


def test_without_an_atomic_block_it_is_refused(reservations):
    for tx in (None, "other"):
        with pytest.raises(ReservationError, match=r"committed at once.*atomic\(\)"):
            reservations.once("a", tx=tx)
    with transaction.atomic(using="other"), pytest.raises(ReservationError, match="no transaction open on 'default'"):
        reservations.once("a")
    assert states() == []


def test_a_transaction_by_hand_is_one_as_well(reservations):
    transaction.set_autocommit(False)
    try:
        assert reservations.once("a")
        transaction.rollback()
        assert reservations.once("a")
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert states() == ["done"]


def test_a_savepoint_takes_the_marker_with_it(reservations):
    with transaction.atomic():
        with suppress(Undo), transaction.atomic():
            assert reservations.once("a")
            raise Undo
        assert reservations.once("a")


def test_a_connection_of_another_kind_of_database_is_refused(request, tmp_path):
    with databases(default=database("sqlite", request, tmp_path), other=database("postgresql", request, tmp_path)):
        reservations = Reservations.django()
        with transaction.atomic(using="other"), pytest.raises(ReservationError, match=r"of postgresql, .* of sqlite"):
            reservations.once("a", tx="other")


# Rows of the caller's own


def test_a_row_is_as_save_would_have_made_it(reservations, rows):
    order = rows.Order.objects.create(number=7)
    found = []
    for _ in range(2):
        with transaction.atomic():
            values = {"order": order, "code": "a%b:c"}
            found.append(reservations.insert_once(None, rows.Parcel, values, on=["order", "code"]))
    (first, made), (second, again) = found
    assert (made, again, first.pk) == (True, False, second.pk)
    assert (first.order, first.code, first.tags, first.packed_at) == (order, "a%b:c", ["new"], second.packed_at)
    assert first.packed_at is not None
    assert not first._state.adding


def test_a_foreign_key_is_named_by_its_column_as_well(reservations, rows):
    rows.Order.objects.create(number=7)
    with transaction.atomic():
        for made in (True, False):
            row, created = reservations.insert_once(None, rows.Parcel, {"order_id": 7, "code": "a"}, on=["order_id", "code"])
            assert (row.order_id, created) == (7, made)


def test_a_proxy_is_as_good_as_its_model(reservations, rows):
    with transaction.atomic():
        row, created = reservations.insert_once("default", rows.Proxy, {"number": 7}, on=["number"])
    assert (type(row), row.number, created) == (rows.Proxy, 7, True)


def test_a_row_in_two_tables_is_refused(reservations, rows):
    with transaction.atomic(), pytest.raises(ReservationError, match="another for its parent"):
        reservations.insert_once(None, rows.Express, {"number": 7}, on=["number"])


@pytest.mark.parametrize("name", ["parcel", "nothing"])
def test_an_index_over_what_is_no_column_is_refused(reservations, rows, name):
    with transaction.atomic(), pytest.raises((ReservationError, TypeError), match=name):
        reservations.insert_once(None, rows.Order, {"number": 7, name: 1}, on=[name])


def test_a_row_is_made_in_the_callers_transaction_alone(reservations, rows):
    with pytest.raises(ReservationError, match="no transaction open"):
        reservations.insert_once(None, rows.Order, {"number": 7}, on=["number"])
    with suppress(Undo), transaction.atomic():
        reservations.insert_once(None, rows.Order, {"number": 7}, on=["number"])
        raise Undo
    assert not rows.Order.objects.exists()
