"""Every database layer, with empty tables, and a clock that a test can move."""

import pytest
from contract.reservations.django_backend import DjangoBackend
from contract.reservations.sqlalchemy_backend import SqlAlchemyBackend

from celery_once_more import crash


class Clock:
    """Adds to what every database says; never takes away."""

    def __init__(self):
        self.ahead = 0.0

    def move(self, seconds):
        self.ahead += seconds

    def ahead_s(self):
        return self.ahead

    def reach(self, when, kind, what, *, key):
        pass


@pytest.fixture
def clock():
    crash.watcher = Clock()
    yield crash.watcher
    crash.watcher = None


DATABASES = ["sqlite", "postgresql", "mariadb"]


@pytest.fixture(params=[*DATABASES, *(f"django-{name}" for name in DATABASES)])
def backend(request, tmp_path):
    layer, _, name = request.param.rpartition("-")
    if name == "sqlite":
        url = f"sqlite:///{tmp_path}/reservations.sqlite3"
    elif name == "postgresql":
        at = request.getfixturevalue("postgres_server").where()
        url = f"postgresql+psycopg://{at['user']}@{at['host']}:{at['port']}/{at['dbname']}"
    else:
        url = request.getfixturevalue("mariadb_server").url()
    backend = (DjangoBackend if layer else SqlAlchemyBackend)(name, url).make()
    yield backend
    backend.drop()


@pytest.fixture
def reservations(backend):
    return backend.reservations
