"""Tasks that wait for a SQLAlchemy session's transaction, on SQLite and on PostgreSQL."""

import asyncio
import gc
import weakref
from contextlib import suppress

import pytest
from sqlalchemy import NullPool, create_engine, event, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from support.apps import unique
from support.lock_db import held
from support.on_commit import BAD_CALLS, ship

from celery_once_more.sqlalchemy import UniqueTask, apply_async_on_commit, delay_on_commit

pytest_plugins = ["support.app_fixtures", "support.on_commit_fixtures"]


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True)


class Undo(Exception):
    pass


def postgres_url(server):
    at = server.where()
    return f"postgresql+psycopg://{at['user']}@{at['host']}:{at['port']}/{at['dbname']}"


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request, tmp_path):
    """With an empty table ``orders``."""
    if request.param == "sqlite":
        engine = create_engine(f"sqlite:///{tmp_path}/orders.sqlite3", poolclass=NullPool)
        _begin_by_ourselves(engine)
    else:
        engine = create_engine(postgres_url(request.getfixturevalue("postgres_server")))
    Base.metadata.create_all(engine)
    yield engine
    Base.metadata.drop_all(engine)
    engine.dispose()


def _begin_by_ourselves(engine):
    """Python's SQLite driver begins a transaction too late for savepoints."""

    @event.listens_for(engine, "connect")
    def leave_it(connection, _):
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection):
        connection.exec_driver_sql("BEGIN")


@pytest.fixture
def session(engine):
    with Session(engine) as session:
        yield session


@pytest.fixture
def task(make_app):
    return unique(make_app(), ship, base=UniqueTask)


def rows(engine):
    with Session(engine) as other:
        return list(other.scalars(select(Order.number).order_by(Order.number)))


# Commit and rollback


def test_lock_and_message_are_there_after_the_commit_and_not_before(session, task, sent, locks):
    session.add(Order(number=1))
    task.delay_on_commit(session, "order_1")
    session.flush()
    assert (sent(), held(locks)) == ([], [])
    session.commit()
    assert sent() == ["order_1"]
    assert len(held(locks)) == 1


def test_when_the_message_is_sent_another_session_sees_the_rows_and_this_one_holds_no_connection(
    engine, session, task, at_publish
):
    seen = at_publish(lambda: (rows(engine), session.in_transaction()))
    task.delay_on_commit(session, "order_1")
    session.add(Order(number=1))
    session.commit()
    assert seen == [([1], False)]


def test_nothing_at_all_happens_on_rollback(session, task, broker, locks, told):
    session.add(Order(number=1))
    task.delay_on_commit(session, "order_1")
    session.rollback()
    session.commit()
    assert broker.empty()
    assert not locks.keys()
    assert told == []


def test_a_session_that_is_closed_without_a_commit_drops_its_calls(session, task, broker):
    task.delay_on_commit(session, "order_1")
    session.close()
    session.add(Order(number=1))
    session.commit()
    assert broker.empty()


def test_a_call_before_the_first_statement_belongs_to_the_transaction_that_it_begins(session, task, sent):
    task.delay_on_commit(session, "order_1")
    assert session.in_transaction()
    assert sent() == []
    session.commit()
    assert sent() == ["order_1"]


def test_a_session_that_begins_nothing_by_itself_publishes_at_once(engine, task, sent):
    with Session(engine, autobegin=False) as session:
        task.delay_on_commit(session, "order_1")
        assert sent() == ["order_1"]
        with session.begin():
            task.delay_on_commit(session, "order_2")
            assert sent() == ["order_1"]
    assert sent() == ["order_1", "order_2"]


def test_the_context_managers_of_a_session_and_of_its_maker_commit_and_roll_back(engine, session, task, sent):
    maker = sessionmaker(engine)
    with session.begin():
        task.delay_on_commit(session, "a")
    with maker.begin() as other:
        task.delay_on_commit(other, "b")
    with suppress(Undo), session.begin():
        task.delay_on_commit(session, "c")
        raise Undo
    with suppress(Undo), maker.begin() as other:
        task.delay_on_commit(other, "d")
        raise Undo
    assert sent() == ["a", "b"]


def test_a_session_is_used_again_after_a_commit_and_after_a_rollback(session, task, sent):
    for order, end in (("a", session.commit), ("b", session.rollback), ("c", session.commit), ("d", session.close)):
        task.delay_on_commit(session, order)
        end()
    assert sent() == ["a", "c"]


def test_messages_are_sent_in_the_order_of_the_calls_also_across_savepoints(session, task, sent):
    task.delay_on_commit(session, "d")
    with session.begin_nested():
        task.delay_on_commit(session, "c")
        with session.begin_nested():
            task.delay_on_commit(session, "b")
        task.delay_on_commit(session, "e")
    task.delay_on_commit(session, "a")
    session.commit()
    assert sent() == ["d", "c", "b", "e", "a"]


def test_two_sessions_wait_for_their_own_transactions(engine, session, task, sent):
    with Session(engine) as other:
        task.delay_on_commit(session, "order_1")
        task.delay_on_commit(other, "order_2")
        other.commit()
        assert sent() == ["order_2"]
    session.commit()
    assert sent() == ["order_2", "order_1"]


def test_a_commit_that_the_database_refuses_publishes_nothing(engine, session, task, broker):
    with Session(engine) as other:
        other.add(Order(number=1))
        other.commit()
    task.delay_on_commit(session, "order_1")
    session.add(Order(number=1))
    with pytest.raises(IntegrityError):
        session.commit()
    session.rollback()
    session.commit()
    assert broker.empty()


def test_a_duplicate_is_dropped_at_its_commit(session, task, sent, told):
    task.delay_on_commit(session, "order_1")
    task.delay_on_commit(session, "order_1")
    session.commit()
    assert sent() == ["order_1"]
    assert [name for name, _, _ in told] == ["lock_acquired", "lock_conflict"]


# Savepoints


def test_a_savepoint_that_is_rolled_back_takes_its_calls_with_it_and_no_others(session, task, sent):
    task.delay_on_commit(session, "before")
    with suppress(Undo), session.begin_nested():
        task.delay_on_commit(session, "inside")
        raise Undo
    task.delay_on_commit(session, "after")
    session.commit()
    assert sent() == ["before", "after"]


def test_a_released_savepoint_waits_for_the_transaction_around_it(session, task, sent):
    with session.begin_nested():
        task.delay_on_commit(session, "inside")
    assert sent() == []
    session.commit()
    assert sent() == ["inside"]


def test_a_released_savepoint_is_lost_with_the_transaction_around_it(session, task, broker, locks):
    with session.begin_nested():
        task.delay_on_commit(session, "inside")
    session.rollback()
    session.commit()
    assert broker.empty()
    assert not locks.keys()


def test_a_released_savepoint_is_lost_with_the_savepoint_around_it(session, task, sent):
    with session.begin_nested() as outer:
        task.delay_on_commit(session, "outer")
        with session.begin_nested():
            task.delay_on_commit(session, "inner")
        outer.rollback()
    task.delay_on_commit(session, "after")
    session.commit()
    assert sent() == ["after"]


def test_an_open_savepoint_is_lost_with_the_one_around_it(session, task, sent):
    outer = session.begin_nested()
    session.begin_nested()
    task.delay_on_commit(session, "inner")
    outer.rollback()
    session.commit()
    assert sent() == []


def test_an_open_savepoint_is_committed_with_the_transaction_around_it(session, task, sent):
    session.begin_nested()
    session.begin_nested()
    task.delay_on_commit(session, "inner")
    session.commit()
    assert sent() == ["inner"]


def test_a_statement_that_fails_in_a_savepoint_loses_that_savepoint_alone(engine, session, task, sent):
    session.add(Order(number=1))
    task.delay_on_commit(session, "order_1")
    with suppress(IntegrityError), session.begin_nested():
        task.delay_on_commit(session, "again")
        session.execute(Order.__table__.insert().values(number=1))
    session.add(Order(number=2))
    task.delay_on_commit(session, "order_2")
    session.commit()
    assert sent() == ["order_1", "order_2"]
    assert rows(engine) == [1, 2]


def test_a_flush_that_fails_in_a_savepoint_loses_that_savepoint_alone(engine, session, task, sent):
    session.execute(Order.__table__.insert().values(number=1))
    task.delay_on_commit(session, "order_1")
    savepoint = session.begin_nested()
    task.delay_on_commit(session, "again")
    session.add(Order(number=1))
    with pytest.raises(IntegrityError):
        session.flush()
    savepoint.rollback()
    session.commit()
    assert sent() == ["order_1"]
    assert rows(engine) == [1]


def test_a_call_from_inside_a_flush_is_one_of_the_transaction_around_it(session, task, sent):
    @event.listens_for(session, "after_flush")
    def publish(session, _):
        task.delay_on_commit(session, "flushed")

    with session.begin_nested():
        session.add(Order(number=1))
    assert sent() == []
    session.commit()
    assert sent() == ["flushed"]


# Kinds of sessions and of tasks


def test_a_scoped_session_is_the_session_behind_it(engine, task, sent):
    scoped = scoped_session(sessionmaker(engine))
    delay_on_commit(scoped, task, "a")
    scoped.rollback()
    task.delay_on_commit(scoped, "b")
    scoped.commit()
    scoped.remove()
    assert sent() == ["b"]


def test_an_async_session_and_a_scoped_one_are_the_sessions_behind_them(postgres_server, task, sent):
    async def main():
        engine = create_async_engine(postgres_url(postgres_server))
        async with AsyncSession(engine) as session:
            task.delay_on_commit(session, "a")
            async with session.begin_nested():
                apply_async_on_commit(session, task, ("b",))
            assert sent() == []
            await session.commit()
            task.delay_on_commit(session, "c")
            await session.rollback()
        scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
        task.delay_on_commit(scoped, "d")
        await scoped.commit()
        await scoped.remove()
        await engine.dispose()

    asyncio.run(main())
    assert sent() == ["a", "b", "d"]


def test_a_plain_celery_task_waits_for_the_commit_as_well(session, make_app, sent):
    plain = make_app().task(ship, name="plain")
    delay_on_commit(session, plain, "a")
    assert sent() == []
    session.commit()
    assert sent() == ["a"]


def test_a_parameter_of_the_task_may_be_named_as_one_of_ours(session, make_app, sent):
    def keep(order, session, task):
        return order

    task = unique(make_app(), keep, base=UniqueTask)
    task.delay_on_commit(session, "a", session="s", task="t")
    delay_on_commit(session, task, "b", session="s", task="t")
    session.commit()
    assert sent() == ["a", "b"]


def test_what_was_said_of_the_message_reaches_it(session, task, broker):
    task.apply_async_on_commit(session, ("order_1",), {"note": "x"}, task_id="ship_1", queue="slow")
    session.commit()
    (message,) = broker.waiting("slow")
    assert message["headers"]["id"] == "ship_1"


class Watched(str):
    """An argument that a weak reference can watch."""

    def __deepcopy__(self, memo):
        return self


@pytest.mark.parametrize("end", ["commit", "rollback", "close", "nothing"])
def test_nothing_is_kept_for_a_session_that_is_gone(engine, task, end):
    session, order = Session(engine), Watched("order_1")
    task.delay_on_commit(session, order)
    if end != "nothing":
        getattr(session, end)()
    watched = [weakref.ref(session), weakref.ref(order)]
    del session, order
    gc.collect()
    assert [ref() for ref in watched] == [None, None]


@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_a_session_that_goes_on_keeps_nothing_of_the_calls_that_are_over(session, task, end):
    order = Watched("order_1")
    task.delay_on_commit(session, order)
    getattr(session, end)()
    watched = weakref.ref(order)
    del order
    gc.collect()
    assert watched() is None


# What goes wrong in the hook


def test_what_fails_in_the_hook_reaches_neither_the_other_calls_nor_the_committer(engine, session, failing, task, sent):
    fails = failing.task(UniqueTask)
    ahead = sent()
    task.delay_on_commit(session, "first")
    fails.delay_on_commit(session, "order_1")
    task.delay_on_commit(session, "last")
    session.add(Order(number=1))
    session.commit()
    assert sent() == [*ahead, "first", "last"]
    assert rows(engine) == [1]


def test_what_fails_in_the_hook_is_logged_and_signalled(session, failing, told):
    fails = failing.task(UniqueTask)
    fails.apply_async_on_commit(session, ("order_1",), task_id="ship_1")
    session.commit()
    (line,) = failing.lines()
    assert line.levelno == failing.level
    assert f"task {fails.name}[ship_1]" in line.getMessage()
    assert failing.words in line.getMessage()
    assert [(name, what["task_id"]) for name, _, what in told] == [(failing.signal, "ship_1")]


def test_a_session_works_on_after_a_hook_that_failed(session, failing, task, sent):
    fails = failing.task(UniqueTask)
    fails.delay_on_commit(session, "order_1")
    session.commit()
    task.delay_on_commit(session, "next")
    session.commit()
    assert sent()[-1] == "next"


# What is wrong with the call


@pytest.mark.parametrize(("args", "options", "error", "words"), BAD_CALLS)
def test_a_wrong_call_is_refused_where_it_is_written(session, task, broker, locks, args, options, error, words):
    with pytest.raises(error, match=words):
        task.apply_async_on_commit(session, args, **options)
    session.commit()
    assert broker.empty()
    assert not locks.keys()


def test_a_change_of_the_arguments_after_the_call_does_not_reach_the_message(session, task, sent):
    order = {"number": 1, "lines": ["a"]}
    task.delay_on_commit(session, order)
    order["lines"].append("b")
    session.commit()
    assert sent() == [{"number": 1, "lines": ["a"]}]


# Eager mode


def test_in_eager_mode_the_body_runs_at_the_commit_and_may_use_the_session(session, make_app, nowhere):
    ran = []

    def note(number):
        ran.append((number, session.get(Order, number) is not None))

    task = unique(make_app(task_always_eager=True, once_more_redis_url=nowhere), note, base=UniqueTask)
    session.add(Order(number=1))
    task.delay_on_commit(session, 1)
    assert ran == []
    session.commit()
    assert ran == [(1, True)]
