"""A URL, as Celery spells it -> a redis-py client with short timeouts and few retries."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import redis
from kombu.utils.url import maybe_sanitize_url
from redis.backoff import ExponentialBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel as _Sentinel

from celery_once_more.exceptions import ConfigurationError

#: schemes, as given -> as redis-py knows them
SCHEMES = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "socket": "unix",
    "redis+socket": "unix",
    "sentinel": "sentinel",
}
#: seconds; an outage must not block a publisher for long, and a repeated act answers as the first time
DEFAULTS: dict[str, Any] = {"socket_connect_timeout": 1.0, "socket_timeout": 1.0}
RETRIES = 1
Sentinel: Any = _Sentinel  # redis-py has no types for it


def is_redis(url: Any) -> bool:
    return isinstance(url, str) and urlsplit(url).scheme in SCHEMES


def connect(url: str, options: Mapping[str, Any]) -> redis.Redis:
    """A client of its own pool; nothing is sent yet.

    Raises:
        ConfigurationError: a URL or an option that redis-py does not take.
    """
    given = {**DEFAULTS, "retry": Retry(ExponentialBackoff(cap=0.1, base=0.02), RETRIES), **options}
    scheme = SCHEMES.get(urlsplit(url).scheme)
    if scheme is None:
        raise ConfigurationError(f"once_more_redis_url must begin with one of {', '.join(f'{s}://' for s in SCHEMES)}, "
                                 f"not {maybe_sanitize_url(url)!r}")  # fmt: skip
    try:
        if scheme == "sentinel":
            return _sentinel(url, given)
        given.pop("master_name", None)
        given.pop("sentinel_kwargs", None)
        client = redis.Redis.from_url(_spelled(url, scheme), **given)
        client.connection_pool.make_connection()  # an option that it does not take shows here, and not at the first use
    except (TypeError, ValueError) as exc:
        raise ConfigurationError(f"once_more_redis_url, once_more_redis_options: {exc}") from exc
    return client


def _spelled(url: str, scheme: str) -> str:
    """Celery's spelling -> redis-py's: ``virtual_host`` for a socket's database, ``CERT_…`` for what a certificate needs."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if "virtual_host" in query:
        query["db"] = query.pop("virtual_host").strip("/")
    if query.get("ssl_cert_reqs", "").startswith("CERT_"):
        query["ssl_cert_reqs"] = query["ssl_cert_reqs"][len("CERT_") :].lower()
    path = parts.path
    netloc = parts.netloc
    if scheme == "unix" and not path.startswith("/"):
        path = f"/{path}"
    return urlunsplit((scheme, netloc, path, urlencode(query, safe="/"), ""))


def _sentinel(url: str, given: dict[str, Any]) -> redis.Redis:
    """``sentinel://host:port;sentinel://host:port/db``; the master's name stands in the options."""
    name = given.pop("master_name", None)
    if not name:
        raise ConfigurationError("a sentinel:// URL needs the master's name: once_more_redis_options={'master_name': …}")
    sentinel_kwargs = dict(given.pop("sentinel_kwargs", {}))
    hosts, last = [], None
    for part in url.split(";"):
        last = urlsplit(part if "://" in part else f"sentinel://{part}")
        hosts.append((last.hostname or "localhost", last.port or 26379))
    assert last is not None
    given.setdefault("db", int(last.path.strip("/") or 0))
    if last.password:
        given.setdefault("password", unquote(last.password))
    timeouts = {key: given[key] for key in ("socket_timeout", "socket_connect_timeout")}
    sentinel: Any = Sentinel(hosts, sentinel_kwargs={**timeouts, **sentinel_kwargs}, **given)
    master: redis.Redis = sentinel.master_for(name, redis_class=redis.Redis)
    return master


def ssl_options(use_ssl: Any) -> dict[str, Any]:
    """``broker_use_ssl`` / ``redis_backend_use_ssl`` -> redis-py options, for the fallback to such a URL."""
    if not use_ssl:
        return {}
    options = dict(use_ssl) if isinstance(use_ssl, Mapping) else {}
    requirement = options.get("ssl_cert_reqs")
    if isinstance(requirement, ssl.VerifyMode):
        options["ssl_cert_reqs"] = requirement.name[len("CERT_") :].lower()
    return {"ssl": True, **options}
