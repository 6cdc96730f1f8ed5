"""``once`` and ``insert_once``: effects inside the caller's own transaction, which nothing that happens there may spoil."""

import pytest
from support.forked import FORK, Child

from celery_once_more import ConfigurationError
from celery_once_more.reservations import REPEAT, ReservationError

KEY = ("order-lines", 42)


class Undo(Exception):
    pass


@pytest.fixture(params=["the default", "REPEATABLE READ"])
def isolation(request, backend):
    if request.param == "the default":
        return None
    if backend.name == "sqlite":
        pytest.skip("SQLite has one level of isolation")
    return request.param


def test_the_effect_is_done_in_the_first_transaction_that_commits(backend, reservations, isolation):
    did = []
    for _ in range(3):
        with backend.transaction(isolation) as tx:
            did.append(reservations.once(KEY, tx=tx))
            if did[-1]:
                backend.write(tx, "lines")
    assert (did, backend.words()) == ([True, False, False], ["lines"])


def test_a_rollback_takes_the_marker_with_the_effect(backend, reservations, isolation):
    try:
        with backend.transaction(isolation) as tx:
            assert reservations.once(KEY, tx=tx)
            backend.write(tx, "lines")
            raise Undo
    except Undo:
        pass
    with backend.transaction(isolation) as tx:
        assert reservations.once(KEY, tx=tx)
    assert (backend.words(), len(backend.rows())) == ([], 1)


def test_the_transaction_goes_on_after_a_no(backend, reservations, isolation):
    with backend.transaction() as tx:
        reservations.once(KEY, tx=tx)
    with backend.transaction(isolation) as tx:
        backend.write(tx, "before")
        assert [reservations.once(KEY, tx=tx), reservations.once("other", tx=tx), reservations.once("other", tx=tx)] == [
            False, True, False,
        ]  # fmt: skip
        backend.write(tx, "after")
        assert backend.words(tx) == ["before", "after"]
    assert backend.words() == ["before", "after"]


def test_a_marker_that_was_committed_after_the_transaction_began_is_seen(backend, reservations, isolation):
    """Where the transaction itself would see of it nothing."""
    if backend.name == "sqlite":
        pytest.skip("SQLite refuses every write of a transaction that has read an older state")
    with backend.transaction(isolation) as tx:
        assert backend.words(tx) == []
        with backend.transaction() as other:
            assert reservations.once(KEY, tx=other)
        assert not reservations.once(KEY, tx=tx)
        backend.write(tx, "goes on")
    assert backend.words() == ["goes on"]


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_concurrent_copy_waits_until_the_first_has_ended(backend, reservations, isolation, ends):
    marked = FORK.Event()

    def copy(tell):
        own = backend.again()
        marked.wait()
        with own.transaction(isolation) as tx:
            tell("begins")
            return own.reservations.once(KEY, tx=tx)

    child = Child(copy)  # first: a connection of SQLite must not be forked
    try:
        with backend.transaction() as tx:
            assert reservations.once(KEY, tx=tx)
            marked.set()
            assert child.hear() == "begins"
            assert not child.heard(within=1)
            if ends == "rollback":
                raise Undo
    except Undo:
        pass
    assert child.end() == (ends == "rollback")
    assert len(backend.rows()) == 1


def test_run_of_the_same_key_is_something_else(backend, reservations):
    with backend.transaction() as tx:
        assert reservations.once(KEY, tx=tx)
    assert reservations.run(KEY, lambda r: "ch_1", on_unknown=REPEAT, lease=60) == "ch_1"


def test_what_is_no_transaction_is_refused(backend, reservations):
    for tx in backend.no_transactions():
        with pytest.raises(ReservationError, match="tx"):
            reservations.once(KEY, tx=tx)
    assert backend.rows() == []


@pytest.mark.parametrize("key", ["", None, 1.5, (), "x" * 256], ids=repr)
def test_what_is_no_key_is_refused_and_the_transaction_goes_on(backend, reservations, key):
    with backend.transaction() as tx:
        with pytest.raises(ReservationError, match="key"):
            reservations.once(key, tx=tx)
        backend.write(tx, "goes on")
    assert backend.words() == ["goes on"]


def test_a_missing_table_names_what_makes_it(backend, reservations):
    backend.forget_table()
    with pytest.raises(ConfigurationError, match=r"create_table\(\)"), backend.transaction() as tx:
        reservations.once(KEY, tx=tx)


# Rows of the caller's own


@pytest.fixture
def insert(backend):
    def insert(tx, sku="a", **more):
        values = {"order": 1, "sku": sku, **more}
        return backend.reservations.insert_once(tx, backend.Line, values, on=["order", "sku"])

    return insert


def test_a_row_is_made_once_and_found_afterwards(backend, insert):
    found = []
    for note in ("first", "second"):
        with backend.transaction() as tx:
            line, created = insert(tx, note=note)
            found.append((line.id, line.note, created))
    (first, *_), _ = found
    assert found == [(first, "first", True), (first, "first", False)]


def test_a_default_of_the_model_is_given(backend, insert):
    with backend.transaction() as tx:
        assert insert(tx)[0].note == "none"


def test_a_row_that_is_there_does_not_spoil_the_transaction(backend, insert):
    with backend.transaction() as tx:
        backend.write(tx, "before")
        assert [insert(tx)[1], insert(tx)[1], insert(tx, "b")[1]] == [True, False, True]
        backend.write(tx, "after")
    assert (backend.count_lines(), backend.words()) == (2, ["before", "after"])


def test_another_index_that_is_violated_is_an_error(backend, insert):
    with backend.transaction() as tx:
        insert(tx, serial="s1")
    with pytest.raises(backend.IntegrityError), backend.transaction() as tx:
        insert(tx, "b", serial="s1")


def test_what_is_wrong_with_the_row_is_an_error(backend, insert):
    with pytest.raises(backend.DatabaseError), backend.transaction() as tx:
        insert(tx, note=None)


@pytest.mark.parametrize("on", [[], ["order", "missing"], ["serial"]], ids=str)
def test_an_index_over_what_is_not_given_is_refused(backend, reservations, on):
    with pytest.raises(ReservationError, match="on="), backend.transaction() as tx:
        reservations.insert_once(tx, backend.Line, {"order": 1, "sku": "a", "serial": None}, on=on)


def test_what_is_no_model_is_refused(backend, reservations):
    with pytest.raises(ReservationError, match="the model must be"), backend.transaction() as tx:
        reservations.insert_once(tx, dict, {"a": 1}, on=["a"])
