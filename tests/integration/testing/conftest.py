import os
import uuid

import psutil
import pytest
import sqlalchemy
from celery import Celery
from sqlalchemy import event


def runs():
    """Process ids of Python programs that this process started: a server of the whole run is none."""
    found = psutil.process_iter(["ppid", "name"])
    return {one.pid for one in found if one.info["ppid"] == os.getpid() and (one.info["name"] or "").startswith("python")}


@pytest.fixture(autouse=True)
def no_process_is_left():
    before = runs()
    yield
    assert runs() <= before


@pytest.fixture
def app():
    """An app whose broker and results nobody answers at: a crash-point test needs neither."""
    app = Celery(
        f"crash-{uuid.uuid4().hex[:8]}", broker="redis://127.0.0.1:1/0", backend="redis://127.0.0.1:1/1", set_as_current=False
    )
    yield app
    app.close()


@pytest.fixture
def world(tmp_path):
    class World:
        """Lines in a file."""

        path = tmp_path / "world"

        def write(self, line):
            with open(self.path, "a") as file:
                file.write(f"{line}\n")

        def look(self):
            return self.path.read_text().splitlines() if self.path.exists() else []

        def empty(self):
            self.path.unlink(missing_ok=True)

    return World()


@pytest.fixture
def check(app, books, crash_points):
    """``check(job, …)``: the report for a job, a function of the books and a reference."""

    def check(job, **options):
        def run(ref):
            job(books, ref)

        task = app.task(run, name=job.__name__, acks_late=True, reject_on_worker_lost=True)
        return crash_points.check(task, args=(42,), setup=books.seed, state=books.look, **options)

    return check


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request, tmp_path):
    if request.param == "sqlite":
        engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/books.db")

        @event.listens_for(engine, "connect")
        def wal(connection, _record):
            connection.execute("PRAGMA journal_mode=WAL")

        yield engine
        engine.dispose()
        return
    server = request.getfixturevalue("postgres_server")
    name = f"books_{uuid.uuid4().hex[:12]}"
    url = f"postgresql+psycopg://tests@127.0.0.1:{server.port}"
    admin = sqlalchemy.create_engine(f"{url}/postgres", isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool)
    with admin.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine = sqlalchemy.create_engine(f"{url}/{name}")
    yield engine
    engine.dispose()
    with admin.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
