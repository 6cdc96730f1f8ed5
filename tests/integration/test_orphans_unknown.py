"""Where the broker cannot be looked at cheaply, or not at all, nobody knows whether a message is gone, and its lock is kept."""

import logging

import pytest
from support import held
from support.apps import unique
from support.commands import commands_of
from support.orphans import never_sent, passes_until_freed, purge
from support.redis_server import RedisServer

from celery_once_more.brokers import BYTES, MESSAGES
from celery_once_more.reaper import reap
from celery_once_more.runtime import runtime

pytest_plugins = ["support.app_fixtures"]


def settle(key, payload=None):
    return key


@pytest.fixture
def task(make_app):
    return unique(make_app(once_more_lease=1), settle, name="app.task", lock_args=["key"])


@pytest.fixture
def other(task):
    """A task whose messages go to a short queue: its orphan shows when the looks have been made."""
    task.app.conf.task_routes = {"app.other": {"queue": "short"}}
    return unique(task.app, settle, name="app.other", lock_args=["key"])


@pytest.fixture
def looked(task, other):
    def looked():
        never_sent(other, "orphan", queue="short")
        passes_until_freed(other, "orphan")

    return looked


def test_of_a_backlog_only_the_length_is_asked_and_its_locks_are_kept(task, looked, clean_redis):
    never_sent(task, "evt")
    broker = clean_redis.client(0)
    broker.lpush("celery", *["{}"] * (MESSAGES + 1))
    with commands_of(clean_redis, db=0) as sent:
        reap(task.app)
    assert set(sent) == {"HLEN", "LLEN", "MEMORY"}
    looked()
    assert held.holder(task, "evt")
    purge(task)
    assert passes_until_freed(task, "evt") == 1


def test_a_queue_of_few_messages_that_are_large_is_not_read(task, looked, clean_redis):
    never_sent(task, "evt")
    for _ in range(3):
        task.apply_async(("large", "x" * BYTES), task_id="large", lock=None)
    with commands_of(clean_redis, db=0) as sent:
        reap(task.app)
    assert set(sent) == {"HLEN", "LLEN", "MEMORY"}
    looked()
    assert held.holder(task, "evt")


def test_where_workers_hold_too_many_messages_nothing_is_read(task, clean_redis):
    ticket = never_sent(task, "evt")
    broker = clean_redis.client(0)
    broker.hset("unacked", mapping={str(n): "[{}]" for n in range(MESSAGES + 1)})
    for _ in range(3):
        with commands_of(clean_redis, db=0) as sent:
            reap(task.app)
        assert set(sent) == {"HLEN", "LLEN", "MEMORY"}
    assert not runtime(task.app).store.suspects.noted()
    broker.delete("unacked")
    assert passes_until_freed(task, "evt") == 1
    assert ticket


@pytest.mark.parametrize("forbidden", ["hlen", "memory", "lrange", "hvals"])
def test_without_the_right_to_look_nothing_is_freed_and_it_is_said_once(make_app, forbidden, caplog, clean_redis):
    server = RedisServer().start()
    try:
        server.client(0).acl_setuser("shop", enabled=True, passwords=["+secret"], keys=["*"], channels=["*"],
                                     commands=["+@all", f"-{forbidden}"])  # fmt: skip
        app = make_app(broker_url=f"redis://shop:secret@127.0.0.1:{server.port}/0")
        task = unique(app, settle, name="app.task", lock_args=["key"])
        task.delay("sent")
        never_sent(task, "evt")
        for _ in range(4):
            assert reap(app).orphaned == 0
    finally:
        server.stop()
    assert not runtime(app).store.suspects.noted()
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "unknown" in line
    assert "secret" not in line


def test_a_broker_that_does_not_answer_leaves_the_rest_of_the_pass_as_it_is(make_app, nowhere, caplog):
    app = make_app(broker_url=nowhere)
    task = unique(app, settle, name="app.task", lock_args=["key"])
    never_sent(task, "evt")
    never_sent(task, "lapsed")
    held.lapse(task, "lapsed")
    report = reap(app)
    assert (report.lapsed, report.orphaned) == (1, 0)
    assert held.holder(task, "evt")


@pytest.mark.parametrize(
    "conf",
    [
        {"broker_url": "memory://"},
        {"broker_url": "redis://127.0.0.1:1/0;redis://127.0.0.1:2/0"},
        {"broker_transport_options": {"ack_emulation": False}},
    ],
    ids=["not a Redis", "one of several", "not kept until it is acknowledged"],
)
def test_a_broker_that_cannot_prove_a_message_gone_is_not_asked(make_app, conf):
    app = make_app(**conf)
    assert runtime(app).broker is None
    assert runtime(app).place("celery") is None
    assert reap(app).orphaned == 0
