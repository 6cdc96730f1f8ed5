"""What lives one per app: where its locks are, and how its durations are read."""

import logging
import ssl
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from celery import Celery, current_app
from redis.connection import SSLConnection, UnixDomainSocketConnection

from celery_once_more import ConfigurationError
from celery_once_more.runtime import Runtime, milliseconds, runtime


def made(**conf):
    """An app of this configuration, and its store's client."""
    app = Celery("unit", set_as_current=False)
    app.conf.update(conf)
    return app, runtime(app).store.client.connection_pool


def place(**conf):
    """Where the locks of such an app are, as redis-py knows it."""
    given = made(**conf)[1].connection_kwargs
    return given.get("host", given.get("path")), given.get("port"), given.get("db", 0)


# one per app


def test_an_app_has_one_and_two_apps_have_two():
    first, second = (Celery(f"unit{n}", set_as_current=False) for n in range(2))
    assert runtime(first) is runtime(first)
    assert runtime(first) is not runtime(second)
    assert runtime(first).app is first


def test_a_proxy_stands_for_the_app_behind_it(app):
    app.set_current()
    assert runtime(current_app) is runtime(app)


def test_two_apps_have_two_stores():
    _, first = made(once_more_redis_url="redis://a/1")
    _, second = made(once_more_redis_url="redis://b/2")
    assert (first.connection_kwargs["host"], second.connection_kwargs["host"]) == ("a", "b")


def test_nothing_is_read_before_it_is_needed():
    app = Celery("unit", set_as_current=False)
    app.conf.once_more_lease = "wrong"
    made = runtime(app)
    with pytest.raises(ConfigurationError, match="once_more_lease"):
        _ = made.settings
    with pytest.raises(ConfigurationError, match="once_more_lease"):
        _ = made.store


def test_the_store_gets_prefix_and_window_from_the_settings():
    app = Celery("unit", set_as_current=False)
    app.conf.update(
        once_more_redis_url="redis://h", once_more_key_prefix="shop", once_more_redelivery_window=timedelta(minutes=1)
    )
    store = runtime(app).store
    assert store.keys.prefix == "shop"
    assert store.window_ms == 60_000


# where the locks are


def test_the_setting_goes_before_everything():
    assert place(once_more_redis_url="redis://locks/3", broker_url="redis://broker/1", result_backend="redis://results/2") == (
        "locks", None, 3,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({"broker_url": "redis://broker:7/1"}, ("broker", 7, 1)),
        ({"broker_url": "redis://broker/1", "result_backend": "redis://results/2"}, ("broker", None, 1)),
        ({"broker_url": "amqp://broker", "result_backend": "redis://results:7/2"}, ("results", 7, 2)),
        ({"broker_url": "memory://", "result_backend": "redis://results/2"}, ("results", None, 2)),
        ({"broker_url": ["redis://first/1", "redis://second/1"]}, ("first", None, 1)),
        ({"broker_url": "redis://first/1;redis://second/1"}, ("first", None, 1)),
        ({"broker_url": "rediss://broker:7/1"}, ("broker", 7, 1)),
        ({"broker_url": "redis+socket:///run/redis.sock?virtual_host=1"}, ("/run/redis.sock", None, 1)),
        ({"broker_url": "amqp://broker", "broker_write_url": "redis://written/1"}, ("written", None, 1)),
        ({"broker_read_url": "redis://read/1", "broker_write_url": "redis://written/1"}, ("written", None, 1)),
    ],
    ids=str,
)
def test_without_it_the_brokers_redis_else_the_result_backends(conf, expected):
    assert place(**conf) == expected


def test_a_broker_given_to_the_app_is_the_broker():
    app = Celery("unit", broker="redis://broker/1", set_as_current=False)
    assert runtime(app).store.client.connection_pool.connection_kwargs["host"] == "broker"


@pytest.mark.parametrize(
    "conf",
    [
        {},
        {"broker_url": "amqp://broker"},
        {"broker_url": "memory://", "result_backend": "rpc://"},
        {"broker_url": "sqs://", "result_backend": "db+sqlite://"},
    ],
    ids=str,
)
def test_without_any_redis_the_error_says_what_to_set(conf):
    with pytest.raises(ConfigurationError) as caught:
        made(**conf)
    assert "once_more_redis_url" in str(caught.value)
    assert "CELERY_ONCE_MORE_REDIS_URL" in str(caught.value)


@pytest.mark.parametrize(
    ("conf", "whose", "shown"),
    [
        ({"broker_url": "redis://:secret@broker/1"}, "broker", "redis://:**@broker/1"),
        (
            {"broker_url": "memory://", "result_backend": "redis://user:secret@results/2"},
            "result backend",
            "redis://user:**@results/2",
        ),
        (
            {
                "broker_url": "sentinel://:secret@a:1;sentinel://:secret@b:2/1",
                "broker_transport_options": {"master_name": "shop"},
            },
            "broker",
            "sentinel://:**@a:1/;sentinel://:**@b:2/1",
        ),
    ],
)
def test_the_fallback_is_logged_once_with_the_password_masked(caplog, conf, whose, shown):
    caplog.set_level(logging.INFO, "celery_once_more")
    app, _ = made(**conf)
    _ = runtime(app).store
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == f"once_more_redis_url is not set: locks live in the {whose}'s Redis, {shown}"


def test_a_url_that_is_set_is_no_matter_for_a_log_line(caplog):
    caplog.set_level(logging.INFO, "celery_once_more")
    made(once_more_redis_url="redis://:secret@h")
    assert caplog.records == []


def test_options_go_to_redis_wherever_the_url_comes_from():
    for conf in (
        {"once_more_redis_url": "redis://h"},
        {"broker_url": "redis://h"},
        {"result_backend": "redis://h", "broker_url": "memory://"},
    ):
        _, pool = made(once_more_redis_options={"client_name": "shop"}, **conf)
        assert pool.connection_kwargs["client_name"] == "shop"


@pytest.mark.parametrize(
    "conf",
    [
        {"broker_url": "redis://h/1", "broker_use_ssl": {"ssl_cert_reqs": ssl.CERT_NONE}},
        {"broker_url": "rediss://h/1", "broker_use_ssl": {"ssl_cert_reqs": ssl.CERT_NONE}},
        {"broker_url": "memory://", "result_backend": "rediss://h/1", "redis_backend_use_ssl": {"ssl_cert_reqs": ssl.CERT_NONE}},
        {"broker_url": "memory://", "result_backend": "redis://h/1", "redis_backend_use_ssl": {"ssl_cert_reqs": ssl.CERT_NONE}},
        {"broker_url": "rediss://h/1?ssl_cert_reqs=CERT_NONE"},
    ],
    ids=str,
)
def test_tls_falls_back_as_tls(conf):
    _, pool = made(**conf)
    assert pool.connection_class is SSLConnection
    assert pool.connection_kwargs["ssl_cert_reqs"] == "none"
    assert pool.connection_kwargs["db"] == 1


def test_a_socket_falls_back_as_a_socket():
    _, pool = made(broker_url="redis+socket:///run/redis.sock")
    assert pool.connection_class is UnixDomainSocketConnection


@pytest.mark.parametrize(
    "conf",
    [
        {"broker_url": "sentinel://a:1;sentinel://b:2", "broker_transport_options": {"master_name": "shop", "sep": ":"}},
        {"broker_url": "memory://", "result_backend": "sentinel://a:1;sentinel://b:2",
         "result_backend_transport_options": {"master_name": "shop", "retry_policy": {}}},
        {"once_more_redis_url": "sentinel://a:1;sentinel://b:2", "once_more_redis_options": {"master_name": "shop"}},
    ],
    ids=str,
)  # fmt: skip
def test_sentinels_fall_back_with_the_masters_name(conf):
    _, pool = made(**conf)
    assert pool.service_name == "shop"
    assert len(pool.sentinel_manager.sentinels) == 2


@pytest.mark.parametrize(
    "conf",
    [
        {"once_more_redis_url": "http://h"},
        {"once_more_redis_url": "redis://h:port"},
        {"once_more_redis_url": "redis://h", "once_more_redis_options": {"no_such_option": 1}},
        {"once_more_redis_url": "sentinel://h"},
    ],
    ids=str,
)
def test_a_wrong_place_shows_when_the_store_is_made_so_that_a_worker_does_not_start(conf):
    app = Celery("unit", set_as_current=False)
    app.conf.update(conf)
    with pytest.raises(ConfigurationError, match="once_more_redis"):
        _ = runtime(app).store


# durations


def of(**conf):
    app = Celery("unit", set_as_current=False)
    app.conf.update(conf)
    return Runtime(app)


@pytest.mark.parametrize(
    ("seconds", "ms"), [(1, 1000), (0.25, 250), (0.0004, 1), (0, 1), (-5, 1), (1.0006, 1001), (86_400.0, 86_400_000)]
)
def test_milliseconds_are_whole_and_at_least_one(seconds, ms):
    assert milliseconds(seconds) == ms
    assert type(milliseconds(seconds)) is int


def options(**said):
    """Options of which only durations are of interest."""
    return SimpleNamespace(**{"lease": None, "queue_lease": None, "ttl": 0.0, **said})


def test_a_lease_is_in_milliseconds_and_the_task_goes_over_the_setting():
    rt = of(once_more_lease=2.5, once_more_queue_lease=5)
    assert (rt.lease_ms(options()), rt.queue_lease_ms(options())) == (2500, 5000)
    assert (rt.lease_ms(options(lease=7)), rt.queue_lease_ms(options(queue_lease=8))) == (7000, 8000)


def test_a_period_begins_with_the_eta():
    rt = of()
    assert [rt.period_ms(options(ttl=60.0), eta_s) for eta_s in (0.0, 5.0, -5.0)] == [60_000, 65_000, 60_000]
    assert rt.period_ms(options(), 5.0) == 0


@pytest.mark.parametrize(
    ("eta_s", "expires_s", "wait_ms"),
    [
        (0.0, None, 100_000),
        (50.0, None, 150_000),
        (-50.0, None, 100_000),
        (0.0, 30.0, 30_000),
        (50.0, 30.0, 30_000),
        (50.0, 1000.0, 150_000),
        (0.0, -30.0, 1),
        (0.0, 0.0, 1),
    ],
)
def test_a_lock_waits_for_the_queue_lease_from_the_eta_and_never_beyond_expires(eta_s, expires_s, wait_ms):
    assert of(once_more_queue_lease=100).wait_ms(options(), eta_s, expires_s) == wait_ms
    assert of().wait_ms(options(queue_lease=100.0), eta_s, expires_s) == wait_ms


@pytest.mark.parametrize(("moment", "seconds"), [(5, 5.0), (0, 0.0), (-5, -5.0), (0.25, 0.25)])
def test_a_number_is_seconds_from_now(moment, seconds):
    assert of().seconds_until(moment) == seconds


@pytest.mark.parametrize("moment", [None, "soon", "", [], {}, "2024-13-45", timedelta(1)], ids=repr)
def test_what_is_no_moment_makes_no_sense_and_celery_will_say_so(moment):
    assert of().seconds_until(moment) is None


HOUR = timedelta(hours=1)
TOKYO = timezone(timedelta(hours=9))


@pytest.mark.parametrize(
    "spell",
    [
        lambda at: at,
        lambda at: at.astimezone(TOKYO),
        lambda at: at.isoformat(),
        lambda at: at.astimezone(TOKYO).isoformat(),
        lambda at: at.replace(tzinfo=None),
        lambda at: at.replace(tzinfo=None).isoformat(),
    ],
    ids=["aware", "of another zone", "in text", "in text of another zone", "naive", "naive in text"],
)
@pytest.mark.parametrize("offset", [HOUR, -HOUR], ids=["ahead", "past"])
def test_a_moment_in_any_form_that_celery_takes_is_seconds_from_now(spell, offset):
    rt = of()
    before = rt.app.now()
    seconds = rt.seconds_until(spell(before + offset))
    passed = (rt.app.now() - before).total_seconds()
    assert offset.total_seconds() - passed <= seconds <= offset.total_seconds()


def test_a_naive_moment_is_utc_as_it_is_to_celerys_worker():
    rt = of(timezone=TOKYO)
    before = datetime.now(timezone.utc)
    seconds = rt.seconds_until((before + HOUR).replace(tzinfo=None))
    passed = (datetime.now(timezone.utc) - before).total_seconds()
    assert 3600 - passed <= seconds <= 3600


def test_a_moment_at_the_end_of_the_calendar_is_a_moment():
    assert of().seconds_until(datetime.max.replace(tzinfo=timezone.utc)) > 0
