"""A forked child opens connections of its own, and its parent's still work afterwards."""

import gc
import logging
import sqlite3
import weakref

import pytest
from django.db import connections, transaction
from sqlalchemy import NullPool, StaticPool, create_engine, event, select, text
from sqlalchemy.orm import Session
from support.django_databases import databases, rows, run
from support.points import ChildFailed, in_child
from support.shop_tables import Base, Order, make_engine, url_of

from celery_once_more.exceptions import ConfigurationError
from celery_once_more.testing.instruments import django as django_instrument
from celery_once_more.testing.instruments import forget_connections

pytest_plugins = ["support.django_fixtures"]


@pytest.fixture(params=["sqlite", "sqlite with a log", "postgres"])
def engine(request, tmp_path):
    engine = make_engine(url_of(request, tmp_path, request.param.partition(" ")[0]))
    if request.param == "sqlite with a log":

        @event.listens_for(engine, "connect")
        def write_ahead(connection, _):
            connection.execute("PRAGMA journal_mode = WAL")

    Base.metadata.create_all(engine)
    yield engine
    Base.metadata.drop_all(engine)
    engine.dispose()


def numbers(engine):
    with Session(engine) as session:
        return list(session.scalars(select(Order.number).order_by(Order.number)))


def add(engine, number):
    with Session(engine) as session, session.begin():
        session.add(Order(number=number))


def server_side(connection):
    """What tells one connection to a server from another."""
    postgres = connection.dialect.name == "postgresql"
    return connection.scalar(text("SELECT pg_backend_pid()")) if postgres else id(connection.connection.dbapi_connection)


def test_a_child_uses_an_engine_and_its_parent_goes_on_with_the_same_connection(engine):
    with engine.connect() as connection:
        before = server_side(connection)

    def body():
        forget_connections()
        add(engine, 2)
        with engine.connect() as connection:
            assert server_side(connection) != before
        return numbers(engine)

    add(engine, 1)
    assert in_child(body) == [1, 2]
    add(engine, 3)
    assert in_child(body_that_reads(engine)) == [1, 2, 3]
    assert numbers(engine) == [1, 2, 3]
    with engine.connect() as connection:
        assert server_side(connection) == before


def body_that_reads(engine):
    def body():
        forget_connections()
        return numbers(engine)

    return body


def test_a_child_that_disposes_of_an_engine_does_no_harm(engine):
    add(engine, 1)

    def body():
        forget_connections()
        engine.dispose()
        return numbers(engine)

    with engine.connect() as connection:
        before = server_side(connection)
    assert in_child(body) == [1]
    with engine.connect() as connection:
        assert server_side(connection) == before


@pytest.mark.parametrize("use", [lambda c: c.execute(select(Order)), lambda c: c.commit(), lambda c: c.rollback()])
def test_a_connection_that_is_in_use_at_the_fork_stays_its_parents(engine, use):
    with engine.connect() as connection:
        connection.execute(select(Order)).all()

        def body():
            forget_connections()
            with pytest.raises(ConfigurationError, match="was opened before the crash-point test forked its process"):
                use(connection)
            return numbers(engine)

        assert in_child(body) == []
        assert connection.execute(select(Order)).all() == []
        connection.commit()


def test_a_connection_that_ends_in_the_child_is_not_ended_for_the_parent(engine):
    held = [engine.connect(), engine.raw_connection()]
    held[0].execute(select(Order)).all()
    held[0].rollback()
    if engine.dialect.name == "sqlite":
        held[1].cursor().execute("BEGIN")
    held[1].cursor().execute("INSERT INTO orders VALUES (1)")

    def body():
        logging.disable()  # the pool says that it could not give them back
        forget_connections()
        held.pop().close()
        held.clear()

    in_child(body)
    assert held[0].execute(select(Order)).all() == []
    held[0].close()
    held[1].commit()
    held[1].close()
    assert numbers(engine) == [1]


class Referable(sqlite3.Connection):
    """One that a test can see the end of."""


def test_a_connection_that_is_dropped_stays_in_memory_as_its_end_would_close_it(tmp_path):
    path = str(tmp_path / "orders.sqlite3")
    engine = create_engine(f"sqlite:///{path}", connect_args={"factory": Referable})
    Base.metadata.create_all(engine)
    with databases(default={"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": {"factory": Referable}}):
        rows()
        with engine.connect() as connection:
            parents = [weakref.ref(connection.connection.dbapi_connection), weakref.ref(connections["default"].connection)]

        def body():
            forget_connections()
            seen = [numbers(engine), rows()]
            gc.collect()
            return [*seen, *(one() is not None for one in parents)]

        assert in_child(body) == [[], [], True, True]
    engine.dispose()


def test_a_child_of_a_child_has_its_own(engine):
    def body():
        forget_connections()
        add(engine, 1)
        return [in_child(body_that_reads(engine)), numbers(engine)]

    assert in_child(body) == [[1], [1]]


def test_an_engine_without_a_pool_needs_nothing(engine):
    plain = create_engine(engine.url, poolclass=NullPool)
    add(plain, 1)
    assert in_child(body_that_reads(plain)) == [1]


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file::memory:?cache=shared&uri=true"])
@pytest.mark.parametrize("pool", [None, StaticPool])
def test_a_database_in_memory_is_refused_in_a_child(url, pool):
    engine = create_engine(url, poolclass=pool)
    Base.metadata.create_all(engine)
    with pytest.raises(ChildFailed, match=r"ConfigurationError: an SQLite database in memory .* use a file"):
        in_child(body_that_reads(engine))
    assert numbers(engine) == []
    engine.dispose()


# Django


def test_a_child_uses_djangos_connections_and_its_parent_goes_on_with_the_same(django_database):
    run("INSERT INTO orders VALUES (1)")
    rows("other")
    before = {alias: connections[alias].connection for alias in ("default", "other")}

    def body():
        forget_connections()
        with transaction.atomic():
            run("INSERT INTO orders VALUES (2)")
        assert all(connections[alias].connection is not before[alias] for alias in before)
        connections.close_all()
        return rows("other")

    assert in_child(body) == [1, 2]
    run("INSERT INTO orders VALUES (3)")
    assert in_child(body_of_django) == [1, 2, 3]
    assert rows("other") == [1, 2, 3]
    assert all(connections[alias].connection is before[alias] for alias in before)


def body_of_django():
    forget_connections()
    return rows()


def body_of_django_in_a_transaction():
    forget_connections()
    with transaction.atomic():
        return rows()


def test_a_transaction_of_the_parent_is_none_of_the_child(django_database):
    if django_database == "sqlite":
        return  # whose transaction locks the child out, as it shall
    with transaction.atomic():
        run("INSERT INTO orders VALUES (1)")

        def body():
            forget_connections()
            assert django_instrument.open_transactions() == []
            with transaction.atomic():
                return rows()

        assert in_child(body) == []
    assert rows() == [1]


@pytest.mark.parametrize("name", [":memory:", "file:memorydb_default?mode=memory&cache=shared"])
def test_djangos_database_in_memory_is_refused_in_a_child(name):
    with databases(default={"ENGINE": "django.db.backends.sqlite3", "NAME": name}):
        run("CREATE TABLE orders (number integer)")
        for body in (body_of_django, body_of_django_in_a_transaction):
            with pytest.raises(ChildFailed, match=r"ConfigurationError: the database 'default' is an SQLite in memory"):
                in_child(body)
        assert rows() == []
