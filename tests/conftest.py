"""The services: of the tests' own, one of each kind per test process; a missing one is red, never a skip, with ``CI=true``."""

import os

import pytest
from support import mariadb_server as mariadb
from support import postgres_server as postgres
from support import rabbitmq_server as rabbit
from support.redis_server import ADVICE, RedisServer, server_program
from support.worker_process import WorkerProcess

#: characters of a worker's log in the report of a test that failed beside it
END_OF_A_LOG = 8_000


def missing(message):
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def redis_server():
    if server_program() is None:
        missing(ADVICE)
    server = RedisServer().start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def postgres_server():
    if postgres.programs() is None:
        missing("no initdb and postgres: install Debian's postgresql, or put the folder of PostgreSQL's programs on the PATH")
    server = postgres.PostgresServer().start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mariadb_server():
    if mariadb.programs() is None:
        missing("no mariadbd and mariadb-install-db: install Debian's mariadb-server, or put MariaDB's programs on the PATH")
    server = mariadb.MariaDbServer().start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def rabbitmq_host():
    host = rabbit.find()
    if host is None:
        missing("no RabbitMQ: none on port 5672 in which tests may make a virtual host, and no rabbitmq-server to start")
    yield host.start()
    host.stop()


@pytest.fixture(scope="module")
def rabbitmq(rabbitmq_host):
    """A virtual host without a message: what the last module left there would be run by the workers of this one."""
    rabbitmq_host.forget()
    return rabbitmq_host


@pytest.fixture
def clean_redis(redis_server):
    redis_server.client(0).flushall()
    yield redis_server
    redis_server.client(0).flushall()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Tests that share a worker run in one process (``--dist loadgroup``): those of one file, or of one broker and pool in it."""
    for item in items:
        life = getattr(item, "callspec", None) and item.callspec.params.get("life")
        group = item.nodeid.split("::")[0] + ("".join(map(str, life)) if life else "")
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    if report.failed:
        for worker in WorkerProcess.known:
            report.sections.append((f"end of the log of worker {worker.name}", worker.logs()[-END_OF_A_LOG:]))
    return report
