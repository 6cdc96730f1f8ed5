"""``assert_locked``, ``assert_not_locked``, ``release_all``, and an app whose locks are in a Redis of the test's own."""

import pytest
from celery import Celery
from support.apps import unique
from support.stops import Stops
from support.waiting import eventually

from celery_once_more import ConfigurationError, StoreUnavailable
from celery_once_more.runtime import runtime
from celery_once_more.testing.locks import assert_locked, assert_not_locked, locks_in, release_all

pytest_plugins = ["support.app_fixtures"]


@pytest.fixture
def app(make_app):
    return make_app()


def settle(event, payload=None):
    return event


@pytest.fixture
def task(app):
    return unique(app, settle, lock_args=["event"])


# --- assertions


def test_a_lock_that_is_held_is_locked_and_says_by_whom(task):
    result = task.delay("evt_1")
    assert assert_locked(task, "evt_1").holder == result.id
    assert assert_locked(task, event="evt_1", payload={}).phase == "waiting"


def test_that_it_is_not_locked_fails_with_task_digest_holder_and_phase(task):
    result = task.delay("evt_1")
    digest = task.lock_info("evt_1").digest
    with pytest.raises(AssertionError) as caught:
        assert_not_locked(task, "evt_1", payload=1)
    assert str(caught.value) == (
        f"task 'app.settle', called with ('evt_1', payload=1): its lock {digest} is held by {result.id}, which is waiting, "
        "for 86400 s more"
    )


def test_of_a_run_it_says_that_it_is_running(app):
    stops = Stops()
    task = unique(app, stops.body, name="app.stops", bind=True)
    task.delay("evt_1")
    with stops.working(app):
        stops.entered(1)
        assert assert_locked(task, "evt_1").phase == "running"
        with pytest.raises(AssertionError, match="which is running, for 60 s more"):
            assert_not_locked(task, "evt_1")
        assert release_all(app) == 1
        assert_not_locked(task, "evt_1")
        stops.open_all()


def test_a_lock_that_nobody_holds_is_not_locked(task):
    task.delay("evt_2")
    assert_not_locked(task, "evt_1")
    digest = task.lock_info("evt_2").digest
    task.release_lock(task.lock_info("evt_2"))
    with pytest.raises(AssertionError, match=rf"task 'app.settle', called with \('evt_2'\): nobody holds its lock {digest}"):
        assert_locked(task, "evt_2")


@pytest.mark.parametrize("question", [assert_locked, assert_not_locked])
def test_a_question_that_makes_no_sense_is_an_error_and_no_failure(app, task, question):
    for wrong, why in (
        (unique(app, settle, name="app.free", lock=None), "task 'app.free' has no lock; give it lock=…"),
        (app.task(settle, name="app.plain", shared=False), "task 'app.plain' has no lock; give it base=UniqueTask and lock=…"),
        (settle, "settle at 0x.* is no task"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            question(wrong, "evt_1")
    with pytest.raises(TypeError, match="argument"):
        question(task)
    app.conf.task_always_eager = True
    with pytest.raises(ConfigurationError, match=r"'app\.settle' runs eagerly \(task_always_eager\), which never takes a lock"):
        question(task, "evt_1")


def test_a_store_that_does_not_answer_is_no_failure_either(make_app, nowhere):
    task = unique(make_app(once_more_redis_url=nowhere), settle)
    with pytest.raises(StoreUnavailable):
        assert_not_locked(task, "evt_1")


# --- freeing all


def test_all_locks_of_the_app_are_freed_and_counted(app, task):
    other = unique(app, settle, name="app.other", lock="until_expired", lock_ttl=600)
    assert release_all(app) == 0
    for number in range(300):
        task.delay(f"evt_{number}")
    other.delay("evt_1")
    assert release_all(app) == 301
    assert_not_locked(task, "evt_1")
    assert_not_locked(other, "evt_1")
    assert release_all(app) == 0
    assert not task.delay("evt_1").duplicate


def test_a_period_and_each_run_of_a_lock_with_a_limit_are_freed(app):
    stops = Stops()
    limited = unique(app, stops.body, name="app.limited", bind=True, lock="while_executing", lock_limit=2)
    period = unique(app, settle, lock="until_expired", lock_ttl=600)
    period.delay("evt_1")
    with stops.working(app):
        limited.delay("evt_1")
        limited.delay("evt_1")
        stops.entered(2)
        eventually(lambda: assert_locked(period, "evt_1").phase == "kept", what="the end of the period's run")
        assert release_all(app) == 3
        assert_not_locked(period, "evt_1")
        assert_not_locked(limited, "evt_1")
        stops.open_all()


@pytest.mark.parametrize("prefix", ["shop", "sh*p", "s[h]op", "shop:due:1"])
def test_locks_under_other_prefixes_stay(make_app, locks, prefix):
    apps = [make_app(once_more_key_prefix=name) for name in (prefix, "shop-2", "shopp", "xshop", f"{prefix}:more")]
    tasks = [unique(app, settle) for app in apps]
    for task in tasks:
        task.delay("evt_1")
    locks.zadd(f"{prefix}:{{xx}}:due:1", {"not-of-ours": 1})
    assert release_all(apps[0]) == 1
    assert_not_locked(tasks[0], "evt_1")
    for task in tasks[1:]:
        assert_locked(task, "evt_1")


# --- another Redis for an app


def test_a_redis_of_the_settings_comes_back_at_the_end(redis_server, task, app):
    task.delay("evt_1")
    with locks_in(app, redis_server.url(5)):
        assert_not_locked(task, "evt_1")
        task.delay("evt_1")
        assert_locked(task, "evt_1")
        release_all(app)
    assert_locked(task, "evt_1")
    assert app.conf.once_more_redis_url == redis_server.url(2)
    assert "once_more_redis_options" not in app.conf


def test_django_spells_settings_its_own_way(redis_server):
    class Django:
        CELERY_BROKER_URL = "memory://"
        CELERY_ONCE_MORE_REDIS_URL = redis_server.url(2)
        CELERY_ONCE_MORE_REDIS_OPTIONS = {"socket_timeout": 7}

    app = Celery("django", set_as_current=False)
    app.config_from_object(Django, namespace="CELERY")
    with locks_in(app, redis_server.url(5)):
        assert runtime(app).settings.redis_url == redis_server.url(5)
        assert runtime(app).settings.redis_options == {}
    assert runtime(app).settings.redis_url == redis_server.url(2)
    assert runtime(app).settings.redis_options == {"socket_timeout": 7}
