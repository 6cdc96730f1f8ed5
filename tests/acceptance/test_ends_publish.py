"""The rows L1 and L2 of the design: a publish that fails, and a publisher that dies, after the lock was taken."""

# ruff: noqa: N802  (a test bears the number of its row)

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from celery.signals import before_task_publish
from kombu import Connection
from kombu.exceptions import EncodeError, OperationalError
from support import held, results
from support.redis_server import free_port
from support.waiting import eventually

from celery_once_more.reaper import reap

#: seconds that a lock taken for a publish by name has until its message is seen in the broker
HANDOVER = 30


class Stop(BaseException):
    """What no handler of ordinary errors sees."""


@pytest.fixture(autouse=True, scope="module")
def results_are_forgotten(redis_server):
    yield
    results.forget()


@pytest.fixture(autouse=True)
def nothing_else_was_freed(shop):
    before = held.take(shop.early, "bystander")
    yield
    assert held.record(shop.early, "bystander") == before


@pytest.fixture
def dead_broker():
    """A connection to a port where nobody listens."""
    with Connection(f"redis://127.0.0.1:{free_port()}/0") as connection:
        yield connection


@contextmanager
def another_receiver():
    """It is called after the package's, and ends the publish."""

    def refuse(**_):
        raise Stop

    before_task_publish.connect(refuse, weak=False)
    try:
        yield
    finally:
        before_task_publish.disconnect(refuse)


@pytest.fixture
def by_name(shop):
    """Publish past the task's class, in a program that knows the task."""
    shop.app.finalize()
    shop.app.set_current()
    return lambda *args, **options: shop.app.send_task("shop.early", args, **options)


@pytest.fixture
def queue_length(redis_server):
    return lambda: redis_server.client(0).llen("celery")


def assert_nothing_happened(shop, queue_length, key):
    """Nothing is locked, nothing is in the broker, and the next publish goes through."""
    assert held.free(shop.early, key)
    assert queue_length() == 0
    assert not shop.early.delay(key).duplicate
    assert queue_length() == 1


def test_L01_a_publish_to_a_broker_that_is_down_frees_the_lock(shop, dead_broker, queue_length):
    with pytest.raises(OperationalError):
        shop.early.apply_async(("a",), connection=dead_broker)
    assert_nothing_happened(shop, queue_length, "a")


def test_L01_an_argument_that_cannot_be_sent_frees_the_lock(shop, queue_length):
    """It does not count for the digest, so the lock is taken before the message is encoded."""
    with pytest.raises(EncodeError):
        shop.early.delay("a", payload=object())
    assert_nothing_happened(shop, queue_length, "a")


@pytest.mark.parametrize("arguments", [{}, {"key": "a", "unknown": 1}])
def test_L01_wrong_arguments_are_a_type_error_as_in_plain_celery_and_lock_nothing(shop, queue_length, arguments):
    with pytest.raises(TypeError) as plain:
        shop.plain_late.delay(**arguments)
    with pytest.raises(TypeError) as unique:
        shop.early.delay(**arguments)
    assert str(unique.value) == str(plain.value).replace("plain_late", "early")
    assert_nothing_happened(shop, queue_length, "a")


def test_L01_another_receiver_that_ends_the_publish_frees_the_lock(shop, queue_length):
    with another_receiver(), pytest.raises(Stop):
        shop.early.delay("a")
    assert_nothing_happened(shop, queue_length, "a")


@pytest.fixture(params=["a broker that is down", "an argument that cannot be sent", "another receiver"])
def fail_by_name(request, by_name):
    """Publish by name, in vain."""

    def fail(key):
        if request.param == "a broker that is down":
            with pytest.raises(OperationalError):
                by_name(key, connection=request.getfixturevalue("dead_broker"))
        elif request.param == "an argument that cannot be sent":
            with pytest.raises(EncodeError):
                by_name(key, 0.0, object())
        else:
            with another_receiver(), pytest.raises(Stop):
                by_name(key)

    return fail


def test_L01_a_failed_publish_by_name_frees_the_lock_at_once(shop, fail_by_name, queue_length):
    fail_by_name("a")
    assert_nothing_happened(shop, queue_length, "a")


@pytest.mark.parametrize("how", ["by name", "through the task"])
def test_L01_a_failed_publish_by_name_does_not_refuse_the_next_try_of_the_same_caller(
    shop, by_name, fail_by_name, queue_length, how
):
    fail_by_name("a")
    again = by_name("a") if how == "by name" else shop.early.delay("a")
    assert held.holder(shop.early, "a").task_id == again.id
    assert queue_length() == 1


def publisher(code):
    """Another program, which runs this code after ``import shop``; its exit code."""
    env = {**os.environ, "SHOP_CRASH_POINTS": "1"}
    return subprocess.run([sys.executable, "-c", f"import shop; {code}"], env=env, timeout=60).returncode


@pytest.mark.parametrize(
    "call", ["early.apply_async(('a',), task_id='orphan')", "app.send_task('shop.early', ('a',), task_id='orphan')"]
)
def test_L02_the_reaper_frees_the_lock_of_a_publisher_that_died_before_it_published(shop, witness, queue_length, call):
    witness.redis.hset("die at", "orphan", "acquire: after")
    assert publisher(f"shop.app.finalize(); shop.{call}") == -signal.SIGKILL
    assert queue_length() == 0
    assert held.holder(shop.early, "a").task_id == "orphan"
    reaped = eventually(lambda: (report := reap(shop.app)).orphaned and report)
    assert {name: (counts.orphaned, counts.lapsed) for name, counts in reaped.tasks.items()} == {"shop.early": (1, 0)}
    assert_nothing_happened(shop, queue_length, "a")
