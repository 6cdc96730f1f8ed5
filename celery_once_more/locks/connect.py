"""A URL, as Celery spells it -> a redis-py client with short timeouts and few retries."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

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
#: timeouts in seconds: an outage must not block a publisher for long, and a repeated act answers as the first time; and as many
#: connections as one process may open, however many threads or greenlets it has
DEFAULTS: dict[str, Any] = {"socket_connect_timeout": 1.0, "socket_timeout": 1.0, "max_connections": 50}
RETRIES = 1
Sentinel: Any = _Sentinel  # redis-py has no types for it


def is_redis(url: Any) -> bool:
    return isinstance(url, str) and _scheme(url) in SCHEMES


def _scheme(url: str) -> str:
    scheme, separator, _ = url.partition("://")
    return scheme.lower() if separator else ""


def masked(url: str) -> str:
    """``url`` without its passwords."""
    try:
        return ";".join(maybe_sanitize_url(part) for part in url.split(";"))
    except ValueError:  # it cannot be read
        return f"{_scheme(url)}://…"


def connect(url: str, options: Mapping[str, Any]) -> redis.Redis:
    """A client of its own pool; nothing is sent yet.

    Raises:
        ConfigurationError: a URL or an option that redis-py does not take.
    """
    given = {**DEFAULTS, "retry": Retry(ExponentialBackoff(cap=0.1, base=0.02), RETRIES), **options}
    scheme = SCHEMES.get(_scheme(url))
    if scheme is None:
        raise ConfigurationError(f"once_more_redis_url must begin with one of {', '.join(f'{s}://' for s in SCHEMES)}, "
                                 f"not {masked(url)!r}")  # fmt: skip
    try:
        if scheme == "sentinel":
            client = _sentinel(url, given)
        else:
            given.pop("master_name", None)
            given.pop("sentinel_kwargs", None)
            client = redis.Redis.from_url(_spelled(url, scheme, given), **given)
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # an option that it does not take shows here, not at the first use
    except (TypeError, ValueError) as exc:
        raise ConfigurationError(f"once_more_redis_url, once_more_redis_options: {exc}") from exc
    return client


def _spelled(url: str, scheme: str, given: dict[str, Any]) -> str:
    """Celery's spelling -> redis-py's: ``virtual_host`` for a socket's database, ``CERT_…`` for what a certificate needs,
    the first of several brokers; ``ssl`` among the options for ``rediss``.
    """
    parts = urlsplit(url.split(";")[0])
    if given.pop("ssl", False) and scheme == "redis":
        scheme = "rediss"
    query = dict(parse_qsl(parts.query))
    if "virtual_host" in query:
        query["db"] = query.pop("virtual_host").strip("/")
    if query.get("ssl_cert_reqs", "").startswith("CERT_"):
        query["ssl_cert_reqs"] = query["ssl_cert_reqs"][len("CERT_") :].lower()
    ask = f"?{urlencode(query, safe='/')}" if query else ""
    return f"{scheme}://{parts.netloc}{parts.path}{ask}"


def _sentinel(url: str, given: dict[str, Any]) -> redis.Redis:
    """``sentinel://host:port;sentinel://host:port/db``; the master's name stands in the options."""
    name = given.pop("master_name", None)
    if not name:
        raise ConfigurationError("a sentinel:// URL needs the master's name: once_more_redis_options={'master_name': …}")
    sentinel_kwargs = dict(given.pop("sentinel_kwargs", {}))
    parts = [urlsplit(part if "://" in part else f"sentinel://{part}") for part in url.split(";")]
    hosts = [(part.hostname or "localhost", part.port or 26379) for part in parts]
    for part in parts:  # database and password of the master stand in any of them
        if part.path.strip("/"):
            given.setdefault("db", int(part.path.strip("/")))
        if part.username:
            given.setdefault("username", unquote(part.username))
        if part.password:
            given.setdefault("password", unquote(part.password))
    timeouts = {key: given[key] for key in ("socket_timeout", "socket_connect_timeout")}
    sentinel: Any = Sentinel(hosts, sentinel_kwargs={**timeouts, **sentinel_kwargs}, **given)
    master: redis.Redis = sentinel.master_for(name, redis_class=redis.Redis)
    return master


def options_of(use_ssl: Any, transport_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """What Celery's own settings beside the URL of a broker or a result backend say, as redis-py options."""
    named = {k: v for k, v in (transport_options or {}).items() if k in ("master_name", "sentinel_kwargs")}
    return {**ssl_options(use_ssl), **named}


def ssl_options(use_ssl: Any) -> dict[str, Any]:
    """``broker_use_ssl`` / ``redis_backend_use_ssl`` -> redis-py options, for the fallback to such a URL."""
    if not use_ssl:
        return {}
    options = dict(use_ssl) if isinstance(use_ssl, Mapping) else {}
    requirement = options.get("ssl_cert_reqs")
    if isinstance(requirement, ssl.VerifyMode):
        requirement = requirement.name
    if isinstance(requirement, str):
        options["ssl_cert_reqs"] = requirement.removeprefix("CERT_").lower()
    return {"ssl": True, **options}
