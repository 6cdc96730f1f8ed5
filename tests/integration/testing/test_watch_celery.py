"""The points of Celery's publishes, of a body's return, and of libraries that the body imports first."""

import ast
import subprocess
import sys
from contextlib import nullcontext

import pytest
from celery import Task, _state, chain
from celery.app.trace import build_tracer
from support.broker import body as body_of
from support.points import Died, around, seeing

from celery_once_more import UniqueTask, crash
from celery_once_more.testing.instruments import publish as instrument
from celery_once_more.testing.instruments import returned, watch_all

pytest_plugins = ["support.app_fixtures"]

RETURN = ("after", "return", "return")


@pytest.fixture(autouse=True)
def no_shared_task_outlives_its_test(monkeypatch):
    """Celery keeps the tasks that every app shall have in one set per process."""
    monkeypatch.setattr(_state, "_on_app_finalizers", set(_state._on_app_finalizers))


@pytest.fixture
def app(make_app):
    return make_app()


def watching(app, dies_at=None):
    return seeing(instrument.watch(app), dies_at)


def anything(*_):
    return 1


def named(point):
    return ("at", "named", point)


# Publishing


def test_a_publish(app, broker):
    task = app.task(name="ship")(anything)
    with watching(app) as seen:
        task.delay()
        app.send_task("pack")
    assert seen == around("publish", "ship") + around("publish", "pack")
    assert len(broker.waiting()) == 2


def test_an_app_that_has_published_before_is_watched_as_well_and_not_afterwards(app):
    task = app.task(name="ship")(anything)
    task.delay()
    with watching(app) as seen:
        task.delay()
    task.delay()
    assert seen == around("publish", "ship")


def test_the_lock_is_taken_before_the_point_that_precedes_the_message(app, broker, locks):
    task = app.task(name="ship", base=UniqueTask, lock="until_executed")(anything)
    with watching(app, dies_at=1), pytest.raises(Died):
        task.delay()
    assert broker.empty()
    with watching(app) as seen:
        assert not task.delay().duplicate
        assert task.delay().duplicate
    assert seen == around("publish", "ship")


def test_a_publish_that_fails_has_no_point_after_it(make_app, nowhere):
    app = make_app(broker_url=nowhere, task_publish_retry=False, broker_transport_options={"socket_connect_timeout": 1})
    task = app.task(name="ship")(anything)
    with watching(app) as seen, pytest.raises(Exception, match="refused"):
        task.delay()
    assert seen == [("before", "publish", "ship")]


@pytest.mark.parametrize(("dies_at", "sent"), [(1, 0), (2, 1)])
def test_a_death_goes_through(app, broker, dies_at, sent):
    task = app.task(name="ship")(anything)
    with watching(app, dies_at), pytest.raises(Died):
        task.delay()
    assert len(broker.waiting()) == sent


# A body's return


class Context(Task):
    abstract = True

    def __call__(self, *args, **kwargs):
        crash.crash_point("enter")
        try:
            return super().__call__(*args, **kwargs)
        finally:
            crash.crash_point("leave")


class OurContext(Context, UniqueTask):
    abstract = True


def trace(task, argument):
    """As a worker runs it, in a message with its argument for an id."""
    tracer = task.__trace__ or build_tracer(task.name, task, app=task.app)
    request = {"id": argument, "delivery_info": {"routing_key": "celery"}, "reply_to": None, "correlation_id": argument}
    return tracer(argument, [argument], {}, request)


@pytest.mark.parametrize(
    ("options", "around_it"),
    [
        ({}, []),
        ({"base": UniqueTask}, []),
        ({"base": UniqueTask, "lock": "until_executed"}, []),
        ({"autoretry_for": (ValueError,)}, []),
        ({"base": UniqueTask, "autoretry_for": (ValueError,)}, []),
        ({"base": Context}, ["enter", "leave"]),
        ({"base": OurContext, "lock": "while_executing"}, ["enter", "leave"]),
    ],
)
@pytest.mark.parametrize("bind", [False, True])
@pytest.mark.parametrize("built_before", [False, True])
def test_a_body_has_returned_before_anything_of_it_is_stored(app, options, around_it, bind, built_before):
    if bind:

        @app.task(bind=True, **options)
        def ship(self, order):
            crash.crash_point(self.name and order)
            return order
    else:

        @app.task(**options)
        def ship(order):
            crash.crash_point(order)
            return order

    ship = app.tasks[ship.name]
    if built_before:
        ship.__trace__ = build_tracer(ship.name, ship, app=app)
    before = ship.__trace__, ship.run, type(ship).__call__

    def points(order):
        return [named(name) for name in (*around_it[:1], order, *around_it[1:])]

    with seeing(returned(ship), dies_at=len(around_it) + 2) as seen, pytest.raises(Died):
        trace(ship, "order_1")
    assert seen == [*points("order_1"), RETURN]
    assert app.AsyncResult("order_1").state == "PENDING"

    with seeing(returned(ship)) as seen:
        assert trace(ship, "order_2").retval == "order_2"
    assert seen == [*points("order_2"), RETURN]
    assert app.AsyncResult("order_2").state == "SUCCESS"

    assert (ship.__trace__, ship.run, type(ship).__call__) == before
    assert "__call__" not in vars(type(ship))
    with seeing(nullcontext()) as seen:
        trace(ship, "order_3")
    assert seen == points("order_3")


def test_a_body_that_raises_or_retries_has_not_returned(app):
    @app.task(bind=True)
    def ship(self, how):
        if how == "fails":
            raise ValueError
        raise self.retry(countdown=1)

    ship = app.tasks[ship.name]
    with seeing(returned(ship)) as seen:
        trace(ship, "fails")
        trace(ship, "retries")
    assert seen == []


def test_a_body_that_calls_itself_returns_once(app):
    @app.task
    def count(n):
        return count.run(n[1:]) + 1 if n else 0

    with seeing(returned(count)) as seen:
        assert trace(app.tasks[count.name], "abc").retval == 3
    assert seen == [RETURN]


def test_the_next_step_of_a_chain_is_published_after_the_return(app, broker):
    first, second = (app.task(name=name)(anything) for name in ("first", "second"))
    chain(first.s(), second.s()).delay()
    (message,) = broker.waiting()
    embed = body_of(message)[2]
    with seeing(watch_all(app)) as seen, returned(first):
        tracer = build_tracer(first.name, app.tasks["first"], app=app)
        tracer("task_1", (), {}, {"id": "task_1", "delivery_info": {}, **embed})
    assert seen == [RETURN, *around("publish", "second")]


def test_eager_mode_returns_as_well(app):
    task = app.task(name="ship")(anything)
    with seeing(returned(task)) as seen:
        assert task.apply().get() == 1
    assert seen == [RETURN]


# Everything at once

LATE = """
import sys
from celery import Celery
from celery_once_more import crash
from celery_once_more.testing.instruments import forget_connections, open_transactions, watch_all

WATCHED = ("sqlalchemy", "django.db", "httpx", "requests")
app = Celery("shop", broker="memory://")
assert not [name for name in WATCHED if name in sys.modules]
seen = []

class Watcher:
    def reach(self, *point, key):
        seen.append(point)

crash.watcher = Watcher()
forget_connections()
assert open_transactions() == []
finders = list(sys.meta_path)
with watch_all(app):
    assert not [name for name in WATCHED if name in sys.modules]
    app.send_task("ship")
    from sqlalchemy import create_engine, text
    with create_engine("sqlite://").connect() as connection:
        connection.execute(text("CREATE TABLE orders (number integer)"))

    import httpx, requests
    httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200))).post("http://shop.test/httpx")

    from django.conf import settings
    settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
    from django.db import connection
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE more (number integer)")
assert sys.meta_path == finders
assert httpx.Client.send.__module__ == "httpx._client" and not hasattr(requests.Session.send, "__wrapped__")
print([(when, what) for when, _, what in seen if when == "before"])
"""


def test_a_library_that_the_body_imports_first_is_watched_from_then_on_and_none_is_imported():
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert ast.literal_eval(done.stdout) == [
        ("before", what) for what in ("ship", "CREATE TABLE orders", "POST http://shop.test/httpx", "CREATE TABLE more")
    ]


def test_libraries_that_are_imported_are_all_watched_at_once(app):
    import httpx
    from sqlalchemy import create_engine, text

    with seeing(watch_all(app)) as seen:
        app.send_task("ship")
        with create_engine("sqlite://").begin() as connection:
            connection.execute(text("CREATE TABLE orders (number integer)"))
            connection.execute(text("INSERT INTO orders VALUES (1)"))
        httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200))).post("http://shop.test/")
    whats = [what for when, _, what in seen if when == "after"]
    assert whats == ["ship", "CREATE TABLE orders", "INSERT INTO orders", "COMMIT", "POST http://shop.test/"]
