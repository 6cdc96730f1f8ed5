"""What is SQLAlchemy's own about reservations: transactions that the caller has open, sessions of every kind, migrations."""

import os
import threading

import pytest
from sqlalchemy import NullPool, create_engine, event, inspect
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from support.forked import Child

from celery_once_more.reservations import REPEAT, AlreadyDone, OpenTransaction, ReservationError, Reservations
from celery_once_more.reservations.sqlalchemy import metadata, reservation_table, table


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def engine(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/orders.sqlite3", poolclass=NullPool)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def reservations(engine):
    reservations = Reservations.sqlalchemy(engine)
    reservations.create_table()
    return reservations


def run(reservations, key="a"):
    return reservations.run(key, lambda r: "done", on_unknown=REPEAT, lease=60)


# Transactions that the caller has open


def test_a_run_inside_an_open_transaction_is_refused_and_says_why(engine, reservations):
    ran = []
    with Session(engine) as session:
        session.get(Order, 1)
        with pytest.raises(OpenTransaction, match="a rollback of it would erase the evidence"):
            reservations.run("a", ran.append, on_unknown=REPEAT, lease=60)
        with pytest.raises(OpenTransaction), reservations.reserve("a", on_unknown=REPEAT, lease=60):
            ran.append("reserved")
        session.commit()
        assert run(reservations) == "done"
    assert ran == []


@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_a_transaction_that_has_ended_is_no_matter(engine, reservations, end):
    session = Session(engine)
    session.add(Order(number=1))
    session.flush()
    getattr(session, end)()
    assert run(reservations) == "done"


def test_a_connection_with_an_open_transaction_is_seen_and_one_without_is_not(engine, reservations):
    with engine.connect() as connection:
        assert run(reservations, "a") == "done"
        connection.exec_driver_sql("SELECT 1")
        with pytest.raises(OpenTransaction):
            run(reservations, "b")
        with connection.begin_nested(), pytest.raises(OpenTransaction):
            run(reservations, "b")
        connection.rollback()
        assert run(reservations, "b") == "done"


def test_an_engine_derived_from_ours_is_seen(engine, reservations):
    with engine.execution_options(whatever=1).begin(), pytest.raises(OpenTransaction):
        run(reservations)


def test_a_connection_that_commits_each_statement_has_none_open(engine, reservations):
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("SELECT 1")
        assert run(reservations) == "done"


def test_another_threads_transaction_is_no_matter(engine, reservations):
    begun, go_on = threading.Event(), threading.Event()

    def hold():
        with engine.begin() as connection:
            connection.exec_driver_sql("SELECT 1")
            begun.set()
            go_on.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait(30)
    assert run(reservations) == "done"
    go_on.set()
    thread.join()


def test_the_parents_transaction_is_no_matter_to_a_forked_child(engine, reservations, tmp_path):
    with engine.begin():
        assert Child(lambda tell: run(reservations)).end() == "done"


def test_it_is_seen_however_often_reservations_are_made_for_an_engine(engine, reservations):
    begins = len(engine.dispatch.begin)
    for _ in range(5):
        again = Reservations.sqlalchemy(engine)
    assert len(engine.dispatch.begin) == begins
    with engine.begin(), pytest.raises(OpenTransaction):
        run(again)


def test_the_effect_may_use_the_database(engine, reservations):
    def effect(reservation):
        with Session(engine) as session, session.begin():
            session.add(Order(number=1))
        run(reservations, "within")
        return "done"

    assert reservations.run("a", effect, on_unknown=REPEAT, lease=60) == "done"
    with pytest.raises(AlreadyDone), reservations.reserve("within", on_unknown=REPEAT, lease=60):
        pass


def test_a_run_inside_the_writes_of_a_completion_is_refused(reservations):
    with pytest.raises(OpenTransaction):
        reservations.run("a", lambda r: 1, on_unknown=REPEAT, lease=60, save=lambda tx, result: run(reservations, "b"))


# Sessions


def test_a_savepoint_takes_the_marker_with_it(engine, reservations):
    @event.listens_for(engine, "connect")
    def leave_it(connection, _):
        connection.isolation_level = None  # Python's driver begins a transaction too late for savepoints

    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with Session(engine) as session:
        nested = session.begin_nested()
        assert reservations.once("a", tx=session)
        nested.rollback()
        assert reservations.once("a", tx=session)
        session.commit()


def test_sessions_of_every_kind_are_taken(engine, reservations):
    with engine.connect() as connection:
        ways = [Session(engine), scoped_session(sessionmaker(engine)), Session(bind=connection), Session(binds={Order: engine})]
        for number, session in enumerate(ways):
            assert reservations.once(number, tx=session)
            session.rollback()
            assert reservations.once(number, tx=session)
            session.rollback()
            session.close()


def test_a_connection_is_a_transaction_as_well(engine, reservations):
    with engine.begin() as connection:
        assert [reservations.once("a", tx=connection), reservations.once("a", tx=connection)] == [True, False]
    with engine.begin() as connection:
        assert not reservations.once("a", tx=connection)


def test_a_row_that_was_made_once_is_an_object_of_the_session(engine, reservations):
    for created in (True, False):
        with Session(engine) as session, session.begin():
            order, made = reservations.insert_once(session, Order, {"number": 7}, on=["number"])
            assert (order in session, made) == (True, created)


def test_an_asynchronous_session_is_told_how(reservations):
    with pytest.raises(ReservationError, match="run_sync"):
        reservations.once("a", tx=AsyncSession())


def test_the_writes_of_a_completion_may_be_a_sessions_own(engine, reservations):
    def save(tx, result):
        tx.add(Order(number=result))
        tx.commit()  # which is not the transaction's

    reservations.run("a", lambda r: 7, on_unknown=REPEAT, lease=60, save=save)
    with Session(engine) as session:
        assert session.get(Order, 7) is not None


# Migrations


def test_the_table_is_the_one_that_a_migration_makes(engine, reservations):
    made = {column["name"]: bool(column["nullable"]) for column in inspect(engine).get_columns(table.name)}
    assert made == {column.name: column.nullable for column in table.columns}


def test_the_table_can_be_one_of_the_projects_own_metadata():
    again = reservation_table(Base.metadata)
    assert again is reservation_table(Base.metadata)
    assert (again.metadata, table.metadata) == (Base.metadata, metadata)
    Base.metadata.remove(again)


def test_a_forked_worker_shares_reservations_with_its_parent(reservations):
    children = [Child(lambda tell: run(reservations, os.getpid())) for _ in range(3)]
    assert [child.end() for child in children] == ["done"] * 3
