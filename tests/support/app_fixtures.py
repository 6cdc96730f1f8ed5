"""pytest fixtures for tests with apps of their own: ``pytest_plugins = ["support.app_fixtures"]`` in a test module.

Databases: 0 broker, 1 results, 2 locks, as in ``shop``.
"""

import pytest
from celery import Celery

from celery_once_more import signals
from support.broker import Broker
from support.redis_server import RedisServer, free_port
from support.waiting import eventually


@pytest.fixture
def make_app(clean_redis):
    """``make_app("name", once_more_lease=3)`` -> a Celery app that is not the current one."""
    # a worker of the last test may still wait at the broker, and would take the first message of this one along
    eventually(lambda: not clean_redis.client(0).info("clients")["blocked_clients"], what="a broker that nobody waits at")
    clean_redis.client(0).flushall()
    made = []

    def make(name="app", **conf):
        app = Celery(name, broker=clean_redis.url(0), backend=clean_redis.url(1), set_as_current=False)
        app.conf.update({"once_more_redis_url": clean_redis.url(2), "result_expires": 600, **conf})
        made.append(app)
        return app

    yield make
    for app in made:
        # A result unsubscribes when it is collected, which may be after the end of this Redis: a traceback in a log record
        # keeps it that long.
        app.backend.result_consumer.cancel_for = lambda task_id: None
        app.close()


@pytest.fixture
def broker(clean_redis):
    return Broker(clean_redis.client(0))


@pytest.fixture
def locks(clean_redis):
    """A client of the lock store."""
    return clean_redis.client(2)


@pytest.fixture
def nowhere():
    """The URL of a Redis that is not there: whatever asks it fails."""
    return f"redis://127.0.0.1:{free_port()}/0"


@pytest.fixture
def lock_server(redis_server):
    """A Redis for the locks alone, which a test may stop, freeze and start again."""
    server = RedisServer().start()
    yield server
    server.stop()


@pytest.fixture
def told():
    """Every signal of the package that was sent: ``(name, sender, keyword arguments)``."""
    heard, receivers = [], []
    for name in signals.__all__:

        def receive(signal, sender, name=name, **what):
            heard.append((name, sender, what))

        getattr(signals, name).connect(receive)
        receivers.append((name, receive))  # a receiver that nobody else holds is forgotten
    yield heard
    for name, receive in receivers:
        getattr(signals, name).disconnect(receive)
