"""``once_more_*`` in the Celery configuration -> one frozen, checked :class:`Settings`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any

from celery_once_more.exceptions import ConfigurationError

PREFIX = "once_more_"
OUTAGE_POLICIES = ("raise", "proceed")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Each field is the setting ``once_more_<name>``; durations are seconds or a ``timedelta``."""

    #: where the locks live; ``None``: the broker's URL if it is Redis, else the result backend's
    redis_url: str | None = None
    #: passed to redis-py; its defaults here are short timeouts and few retries
    redis_options: Mapping[str, Any] = field(default_factory=dict)
    #: what every key begins with; one per deployment that shares a Redis
    key_prefix: str = "once-more"
    #: seconds a running holder keeps its lock without being renewed; renewed three times per lease
    lease: float = 60.0
    #: seconds a waiting holder keeps its lock, counted from its ETA; never beyond ``expires``
    queue_lease: float = 24 * 3600.0
    #: seconds for which a finished call is remembered, so that a late copy of its message does not run again
    redelivery_window: float = 2 * 3600.0
    #: when the lock store does not answer: ``"raise"`` or ``"proceed"``
    on_outage: str = "raise"
    #: locks freed per pass of the reaper
    reap_limit: int = 1000

    @classmethod
    def from_conf(cls, conf: Mapping[str, Any]) -> Settings:
        """Read and check.

        Raises:
            ConfigurationError: an unknown ``once_more_*`` key, or a value of the wrong kind.
        """
        known = {f.name for f in fields(cls)}
        given: dict[str, Any] = {}
        keys = [key for key in conf if isinstance(key, str)]  # first: an app reads its configuration when it is asked for it
        namespace = (getattr(conf, "prefix", None) or "").lower()  # ``CELERY_`` in Django's settings
        spelled = {key.lower().removeprefix(namespace): key for key in keys}
        for key in sorted(key for key in spelled if key.startswith(PREFIX)):
            name = key[len(PREFIX) :]
            if name not in known:
                raise ConfigurationError(f"unknown setting {key!r}{nearest(key, [PREFIX + k for k in known])}")
            value = conf.get(key, conf.get(spelled[key]))
            if value is not None:
                given[name] = _CHECKS[name](key, value)
        return cls(**given)


def nearest(word: str, words: list[str]) -> str:
    close = difflib.get_close_matches(word, sorted(words), 1, 0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; there are: {', '.join(sorted(words))}"


def seconds(name: str, value: Any) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ConfigurationError(f"{name} must be a positive number of seconds or a timedelta, not {value!r}")
    return float(value)


def outage_policy(name: str, value: Any) -> str:
    if value not in OUTAGE_POLICIES:
        raise ConfigurationError(f"{name} must be one of {', '.join(map(repr, OUTAGE_POLICIES))}, not {value!r}")
    return str(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{name} must be a string that is not empty, not {value!r}")
    return value


def _key_prefix(name: str, value: Any) -> str:
    if {"{", "}"} & set(_text(name, value)):
        raise ConfigurationError(f"{name} must not contain braces, which choose a Redis Cluster slot: {value!r}")
    return str(value)


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{name} must be a dict of redis-py options, not {value!r}")
    return dict(value)


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{name} must be a whole number of at least 1, not {value!r}")
    return value


_CHECKS = {
    "redis_url": _text,
    "redis_options": _mapping,
    "key_prefix": _key_prefix,
    "lease": seconds,
    "queue_lease": seconds,
    "redelivery_window": seconds,
    "on_outage": outage_policy,
    "reap_limit": _count,
}
