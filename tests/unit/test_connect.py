"""A URL as Celery spells it -> a client. Only the spelling is tried here; nothing is sent."""

import ssl

import pytest
import redis
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.sentinel import SentinelConnectionPool, SentinelManagedConnection, SentinelManagedSSLConnection

from celery_once_more import ConfigurationError
from celery_once_more.locks.connect import connect, is_redis, ssl_options


def pool(url, **options):
    client = connect(url, options)
    assert isinstance(client, redis.Redis)
    return client.connection_pool


def opened(url, **options):
    """The class of its connections, and what they are given."""
    found = pool(url, **options)
    return found.connection_class, found.connection_kwargs


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://", {}),
        ("redis://h", {"host": "h"}),
        ("redis://h/2", {"host": "h", "db": 2}),
        ("redis://h:7/2", {"host": "h", "port": 7, "db": 2}),
        ("redis://h/?db=2", {"host": "h", "db": 2}),
        ("redis://h?virtual_host=2", {"host": "h", "db": 2}),
        ("redis://h/?virtual_host=/2", {"host": "h", "db": 2}),
        ("redis://:secret@h/2", {"password": "secret", "db": 2}),
        ("redis://user:secret@h", {"username": "user", "password": "secret"}),
        ("redis://user:p%40s%2Fs%3A%25@h", {"password": "p@s/s:%"}),
        ("redis://[::1]:7/2", {"host": "::1", "port": 7}),
        ("REDIS://h/2", {"host": "h", "db": 2}),
        ("redis://h/2?socket_timeout=9&client_name=a%20b", {"socket_timeout": 9.0, "client_name": "a b", "db": 2}),
        ("redis://h:7/2;redis://other:7/3", {"host": "h", "port": 7, "db": 2}),
    ],
)
def test_a_tcp_url(url, expected):
    kind, given = opened(url)
    assert kind is Connection
    assert expected.items() <= given.items()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("rediss://h:7/2", {"host": "h", "port": 7, "db": 2}),
        ("rediss://:secret@h?ssl_cert_reqs=none", {"password": "secret", "ssl_cert_reqs": "none"}),
        ("rediss://h?ssl_cert_reqs=CERT_NONE", {"ssl_cert_reqs": "none"}),
        ("rediss://h?ssl_cert_reqs=CERT_OPTIONAL", {"ssl_cert_reqs": "optional"}),
        (
            "rediss://h?ssl_cert_reqs=CERT_REQUIRED&ssl_ca_certs=%2Fetc%2Fca.pem",
            {"ssl_cert_reqs": "required", "ssl_ca_certs": "/etc/ca.pem"},
        ),
    ],
)
def test_a_tls_url(url, expected):
    kind, given = opened(url)
    assert kind is SSLConnection
    assert expected.items() <= given.items()


@pytest.mark.parametrize("scheme", ["unix", "socket", "redis+socket"])
@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("/run/redis.sock", {"path": "/run/redis.sock"}),
        ("/run/redis.sock?db=2", {"path": "/run/redis.sock", "db": 2}),
        ("/run/redis.sock?virtual_host=2", {"path": "/run/redis.sock", "db": 2}),
        ("/run/redis.sock?virtual_host=/2", {"path": "/run/redis.sock", "db": 2}),
        (":secret@/run/redis.sock", {"path": "/run/redis.sock", "password": "secret"}),
        ("user:s%40t@/run/redis.sock?db=2", {"username": "user", "password": "s@t", "db": 2}),
    ],
)
def test_a_socket_url(scheme, rest, expected):
    kind, given = opened(f"{scheme}://{rest}")
    assert kind is UnixDomainSocketConnection
    assert expected.items() <= given.items()


def sentinels(found):
    return [(s.connection_pool.connection_kwargs["host"], s.connection_pool.connection_kwargs["port"])
            for s in found.sentinel_manager.sentinels]  # fmt: skip


@pytest.mark.parametrize(
    ("url", "hosts", "db", "password"),
    [
        ("sentinel://a:1/2", [("a", 1)], 2, None),
        ("sentinel://a", [("a", 26379)], None, None),
        ("sentinel://a:1;sentinel://b:2;sentinel://c:3/2", [("a", 1), ("b", 2), ("c", 3)], 2, None),
        ("sentinel://a:1;b:2/2", [("a", 1), ("b", 2)], 2, None),
        ("sentinel://a:1/2;b:2", [("a", 1), ("b", 2)], 2, None),
        ("sentinel://:s%40t@a:1;sentinel://:s%40t@b:2/2", [("a", 1), ("b", 2)], 2, "s@t"),
        ("sentinel://a:1/2;sentinel://b:2/2", [("a", 1), ("b", 2)], 2, None),
        ("sentinel://:pw@a:1;b:2/2", [("a", 1), ("b", 2)], 2, "pw"),
    ],
)
def test_a_sentinel_url(url, hosts, db, password):
    found = pool(url, master_name="shop")
    assert isinstance(found, SentinelConnectionPool)
    assert found.connection_class is SentinelManagedConnection
    assert found.service_name == "shop"
    assert sentinels(found) == hosts
    assert found.connection_kwargs.get("db") == db
    assert found.connection_kwargs.get("password") == password


def test_a_sentinels_own_options_are_for_the_sentinels():
    found = pool("sentinel://a", master_name="shop", sentinel_kwargs={"password": "theirs"}, password="ours")
    sentinel = found.sentinel_manager.sentinels[0].connection_pool.connection_kwargs
    assert (sentinel["password"], found.connection_kwargs["password"]) == ("theirs", "ours")
    assert (sentinel["socket_timeout"], sentinel["socket_connect_timeout"]) == (1.0, 1.0)


def test_tls_behind_sentinels():
    assert pool("sentinel://a", master_name="shop", ssl=True).connection_class is SentinelManagedSSLConnection


def test_a_sentinel_url_without_the_masters_name_says_where_it_goes():
    with pytest.raises(ConfigurationError, match=r"needs the master's name: once_more_redis_options=\{'master_name': …\}"):
        connect("sentinel://a:1/2", {})


# options


def test_an_outage_blocks_nobody_for_long():
    _, given = opened("redis://h")
    assert given["socket_connect_timeout"] <= 1
    assert given["socket_timeout"] <= 2
    assert given["retry"].get_retries() <= 1


def test_options_go_over_the_defaults_and_to_redis():
    _, given = opened("redis://h", socket_timeout=5, max_connections=7, client_name="shop")
    assert (given["socket_timeout"], given["client_name"]) == (5, "shop")
    assert pool("redis://h", max_connections=7).max_connections == 7


def test_the_url_goes_before_the_options():
    _, given = opened("redis://h/2?socket_timeout=9", socket_timeout=5, db=3)
    assert (given["db"], given["socket_timeout"]) == (2, 9.0)


def test_options_for_sentinels_do_not_trouble_a_plain_url():
    kind, given = opened("redis://h", master_name="shop", sentinel_kwargs={"password": "x"})
    assert kind is Connection
    assert not {"master_name", "sentinel_kwargs"} & given.keys()


def test_the_callers_options_are_left_as_they_are():
    options = {"master_name": "shop", "sentinel_kwargs": {"password": "x"}, "ssl": True}
    connect("sentinel://a", options)
    connect("redis://h", options)
    assert options == {"master_name": "shop", "sentinel_kwargs": {"password": "x"}, "ssl": True}


def test_each_client_has_a_pool_of_its_own():
    assert pool("redis://h") is not pool("redis://h")


@pytest.mark.parametrize("url", ["redis://h", "rediss://h", "unix:///run/redis.sock", "sentinel://a"])
def test_an_option_that_redis_does_not_take_shows_at_once(url):
    with pytest.raises(ConfigurationError, match=r"once_more_redis_options: .*no_such_option"):
        connect(url, {"master_name": "shop", "no_such_option": 1})


@pytest.mark.parametrize(
    "url", ["redis://h:port/0", "redis://[::1/0", "redis://h?socket_timeout=soon", "sentinel://a:port/0", "sentinel://a/first"]
)
def test_a_broken_url_is_a_configuration_error(url):
    with pytest.raises(ConfigurationError, match="once_more_redis_url"):
        connect(url, {"master_name": "shop"})


@pytest.mark.parametrize(
    "url", ["http://h", "amqp://h", "redis+cluster://h", "valkey://h", "h:6379", "redis", "", "redis:/h", "memory://", "//h"]
)
def test_another_scheme_is_a_configuration_error_that_lists_the_right_ones(url):
    with pytest.raises(ConfigurationError, match="once_more_redis_url must begin with one of redis://, rediss://, unix://"):
        connect(url, {})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:secret@h/0", "http://user:**@h/0"),
        ("http://:secret@a;http://:secret@b:2/0", "http://:**@b:2/0"),
        ("http://:secret@h:port/0", "http://…"),
    ],
)
def test_an_error_shows_no_password(url, shown):
    with pytest.raises(ConfigurationError) as caught:
        connect(url, {})
    assert "secret" not in str(caught.value)
    assert shown in str(caught.value)


# what falls back


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "rediss://h",
        "unix:///s",
        "socket:///s",
        "redis+socket:///s",
        "sentinel://a:1;sentinel://b:2",
        "redis://a;redis://b",
    ],
)
def test_a_url_of_a_redis_is_one(url):
    assert is_redis(url)


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "redis",
        "amqp://redis://",
        "memory://",
        "rpc://",
        "cache+memory://",
        "http://redis",
        5,
        ["redis://h"],
        b"redis://h",
    ],
)
def test_anything_else_is_none(url):
    assert not is_redis(url)


@pytest.mark.parametrize("nothing", [None, False, {}])
def test_no_tls_options(nothing):
    assert ssl_options(nothing) == {}


@pytest.mark.parametrize(
    ("use_ssl", "expected"),
    [
        (True, {}),
        ({"ssl_cert_reqs": ssl.CERT_NONE}, {"ssl_cert_reqs": "none"}),
        ({"ssl_cert_reqs": ssl.CERT_OPTIONAL}, {"ssl_cert_reqs": "optional"}),
        (
            {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": "/etc/ca.pem"},
            {"ssl_cert_reqs": "required", "ssl_ca_certs": "/etc/ca.pem"},
        ),
        ({"ssl_cert_reqs": "required"}, {"ssl_cert_reqs": "required"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_celerys_tls_options_make_a_tls_client(use_ssl, expected, scheme):
    before = dict(use_ssl) if isinstance(use_ssl, dict) else use_ssl
    kind, given = opened(f"{scheme}://h/2", **ssl_options(use_ssl))
    assert kind is SSLConnection
    assert {"host": "h", "db": 2, **expected}.items() <= given.items()
    assert use_ssl == before
