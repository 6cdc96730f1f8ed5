"""The points of SQLAlchemy, on SQLite and on PostgreSQL."""

import asyncio
from contextlib import nullcontext, suppress

import pytest
from sqlalchemy import create_engine, delete, insert, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from support.points import COMMIT, ROLLBACK, Died, seeing, sql
from support.shop_tables import Base, Order, make_engine, url_of

from celery_once_more.testing.instruments import sqlalchemy as instrument

INSERT = sql("INSERT INTO orders")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    return url_of(request, tmp_path, request.param)


@pytest.fixture
def engine(url):
    engine = make_engine(url)
    Base.metadata.create_all(engine)
    yield engine
    Base.metadata.drop_all(engine)
    engine.dispose()


def watching(dies_at=None):
    return seeing(instrument.watch(), dies_at)


def numbers(engine):
    with Session(engine) as session:
        return list(session.scalars(select(Order.number).order_by(Order.number)))


def add(connection, number=1):
    connection.execute(insert(Order).values(number=number))


# What is a point


def test_a_statement_and_its_commit(engine):
    with watching() as seen, engine.begin() as connection:
        add(connection)
    assert seen == INSERT + COMMIT


def test_every_statement_that_writes_and_no_other(engine):
    with watching() as seen, engine.begin() as connection:
        add(connection)
        connection.execute(select(Order)).all()
        connection.execute(update(Order).values(number=2))
        connection.execute(text("DELETE FROM orders"))
        connection.exec_driver_sql("CREATE TABLE more (n integer)")
        connection.exec_driver_sql("DROP TABLE more")
    assert seen == INSERT + sql("UPDATE orders", "DELETE FROM orders", "CREATE TABLE more", "DROP TABLE more") + COMMIT


def test_a_rollback(engine):
    with watching() as seen, engine.connect() as connection:
        add(connection)
        connection.rollback()
    assert seen == INSERT + ROLLBACK


def test_what_is_left_open_is_rolled_back_when_the_connection_is_given_back(engine):
    with watching() as seen, engine.connect() as connection:
        add(connection)
    assert seen == INSERT + ROLLBACK


def test_a_transaction_that_only_reads_has_no_points(engine):
    with watching() as seen:
        with engine.begin() as connection:
            connection.execute(select(Order)).all()
        with engine.connect() as connection:
            connection.execute(select(Order)).all()
    assert seen == []


def test_a_transaction_that_reads_after_one_that_wrote_has_no_points(engine):
    with watching() as seen, engine.connect() as connection:
        for _ in range(2):
            connection.execute(select(Order)).all()
            connection.rollback()
        add(connection)
        connection.commit()
        connection.execute(select(Order)).all()
        connection.commit()
    assert seen == INSERT + COMMIT


def test_savepoints_are_no_points(engine):
    with watching() as seen, engine.begin() as connection:
        with connection.begin_nested():
            add(connection, 1)
            with connection.begin_nested() as inner:
                add(connection, 2)
                inner.rollback()
        add(connection, 3)
    assert seen == INSERT * 3 + COMMIT
    assert numbers(engine) == [1, 3]


def test_with_autocommit_there_is_a_statement_and_no_commit(engine):
    with watching() as seen:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            add(connection, 1)
        if engine.dialect.name == "sqlite":
            return  # our listener begins transactions of its own
        with engine.execution_options(isolation_level="AUTOCOMMIT").begin() as connection:
            add(connection, 2)
        other = create_engine(engine.url, isolation_level="AUTOCOMMIT")
        with other.connect() as connection:
            add(connection, 3)
            connection.commit()
        other.dispose()
    assert seen == INSERT * 3


def test_sqlite_with_autocommit_has_no_commit(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/auto.sqlite3", isolation_level="AUTOCOMMIT")
    Base.metadata.create_all(engine)
    with watching() as seen, engine.begin() as connection:
        add(connection)
    engine.dispose()
    assert seen == INSERT


def test_sqlites_driver_may_begin_by_itself(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/legacy.sqlite3")
    Base.metadata.create_all(engine)
    with watching() as seen:
        with engine.begin() as connection:
            add(connection)
        with engine.begin() as connection:
            connection.execute(select(Order)).all()
    engine.dispose()
    assert seen == INSERT + COMMIT


def test_many_rows_in_one_call_are_one_point(engine):
    rows = [{"number": n} for n in range(5)]
    with watching() as seen, engine.begin() as connection:
        connection.execute(insert(Order), rows)
        connection.execute(delete(Order))
        connection.execute(text("INSERT INTO orders VALUES (:number)"), rows)
    assert seen == INSERT + sql("DELETE FROM orders") + INSERT + COMMIT


def test_a_flush_of_a_session(engine):
    with watching() as seen, Session(engine) as session:
        session.add_all([Order(number=1), Order(number=2)])
        session.flush()
        session.get_one(Order, 1).number = 3
        session.commit()
        session.scalars(select(Order)).all()
    assert seen == INSERT + sql("UPDATE orders") + COMMIT


def test_a_session_on_a_connection_has_the_commit_of_the_connection(engine):
    with watching() as seen, engine.connect() as connection:
        with connection.begin(), Session(connection, join_transaction_mode="create_savepoint") as session:
            session.add(Order(number=1))
            session.commit()
        assert seen == INSERT + COMMIT


def test_a_connection_that_was_open_before_is_watched_as_well(engine):
    with engine.connect() as connection, watching() as seen:
        add(connection)
        connection.commit()
    assert seen == INSERT + COMMIT


def test_of_a_transaction_that_wrote_before_only_what_comes_is_seen(engine):
    with engine.connect() as connection:
        add(connection, 1)
        with watching() as seen:
            connection.commit()
            add(connection, 2)
        connection.commit()
    assert seen == INSERT


def test_two_engines_and_one_that_is_made_later(engine, tmp_path):
    second = make_engine(f"sqlite:///{tmp_path}/second.sqlite3")
    Base.metadata.create_all(second)
    with watching() as seen:
        with engine.begin() as one, second.begin() as two:
            add(one)
            add(two)
        later = make_engine(second.url.render_as_string())
        with later.begin() as connection:
            add(connection, 2)
    second.dispose()
    later.dispose()
    assert seen == INSERT * 2 + COMMIT * 2 + INSERT + COMMIT


def test_a_statement_that_fails_has_no_point_after_it_and_wrote_nothing(engine):
    with engine.begin() as connection:
        add(connection)
    with watching() as seen, suppress(IntegrityError), engine.begin() as connection:
        add(connection)
    # SQLite's transaction goes on; there is nothing in it
    assert seen == INSERT[:1]


def test_of_many_rows_some_may_stay_when_one_fails(engine):
    rows = [{"number": 1}, {"number": 1}]
    with watching() as seen, engine.connect() as connection:
        with suppress(IntegrityError):
            connection.execute(text("INSERT INTO orders VALUES (:number)"), rows)
        connection.commit()
        if engine.dialect.name == "sqlite":
            assert connection.scalars(select(Order.number)).all() == [1]
    assert seen == INSERT[:1] + COMMIT


def test_with_autocommit_they_stay_without_a_commit(url):
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    Base.metadata.create_all(engine)
    rows = [{"number": 1}, {"number": 1}]
    with watching() as seen, engine.connect() as connection:
        with suppress(IntegrityError):
            connection.execute(text("INSERT INTO orders VALUES (:number)"), rows)
        connection.commit()
    Base.metadata.drop_all(engine)
    engine.dispose()
    assert seen == INSERT[:1]


def test_a_commit_that_is_sent_as_a_text(url):
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    Base.metadata.create_all(engine)
    with watching() as seen, engine.connect() as connection:
        for end in ("COMMIT", "ROLLBACK"):
            connection.exec_driver_sql("BEGIN")
            add(connection)
            connection.exec_driver_sql(end)
            connection.exec_driver_sql("DELETE FROM orders")
    Base.metadata.drop_all(engine)
    engine.dispose()
    wanted = INSERT + COMMIT + sql("DELETE FROM orders") + INSERT + ROLLBACK + sql("DELETE FROM orders")
    assert seen == wanted


def test_an_async_session(request, tmp_path, url):
    engine = create_async_engine(
        url_of(request, tmp_path, "sqlite" if url.startswith("sqlite") else "postgres", asynchronous=True)
    )

    async def body():
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        with watching() as seen:
            async with AsyncSession(engine) as session:
                session.add(Order(number=1))
                await session.commit()
                (await session.scalars(select(Order))).all()
        with watching(dies_at=3) as died, pytest.raises(Died):
            async with AsyncSession(engine) as session, session.begin():
                session.add(Order(number=2))
        async with AsyncSession(engine) as session:
            left = list(await session.scalars(select(Order.number)))
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.drop_all)
        await engine.dispose()
        return seen, died, left

    seen, died, left = asyncio.run(body())
    assert seen == INSERT + COMMIT
    assert died == seen[:3]
    assert left == [1]


# Dying


@pytest.mark.parametrize(("dies_at", "left"), [(1, []), (2, []), (3, []), (4, [1])])
def test_a_death_goes_through_and_nothing_happens_after_it(engine, dies_at, left):
    with watching(dies_at) as seen, pytest.raises(Died), Session(engine) as session, session.begin():
        session.add(Order(number=1))
    assert seen[:dies_at] == (INSERT + COMMIT)[:dies_at]
    assert set(seen[dies_at:]) <= set(ROLLBACK)
    assert numbers(engine) == left


@pytest.mark.parametrize("dies_at", [3, 4])
def test_a_death_at_a_rollback_goes_through(engine, dies_at):
    def body():
        with engine.connect() as connection:
            add(connection)
            connection.rollback()

    with watching(dies_at) as seen, pytest.raises(Died):
        body()
    assert seen == (INSERT + ROLLBACK)[:dies_at]
    assert numbers(engine) == []


# Afterwards


def test_afterwards_nothing_is_watched_and_nothing_is_left(engine):
    with seeing(nullcontext()) as seen, engine.connect() as connection:
        with instrument.watch():
            add(connection)
            connection.commit()
        assert seen == INSERT + COMMIT
        assert not {"do_commit", "do_rollback"} & vars(engine.dialect).keys()
        add(connection, 2)
        connection.commit()
    assert seen == INSERT + COMMIT
