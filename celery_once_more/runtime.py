"""What lives, one per Celery app: its settings and its lock store, made when first needed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any

from celery import Celery
from celery.utils.time import maybe_iso8601, maybe_make_aware

from celery_once_more import report
from celery_once_more.exceptions import ConfigurationError, StoreUnavailable
from celery_once_more.locks import LockStore
from celery_once_more.locks.connect import connect, is_redis, masked, ssl_options
from celery_once_more.locks.redis import RedisStore
from celery_once_more.run import Run
from celery_once_more.settings import Settings
from celery_once_more.ticket import Ticket

logger = logging.getLogger(__name__)

_ATTRIBUTE = "_once_more_runtime"
#: seconds; a put-off message must be on its way again well within the broker's visibility timeout (kombu's default)
VISIBILITY_TIMEOUT = 3600.0


class Runtime:
    def __init__(self, app: Celery) -> None:
        self.app = app
        #: in a worker's main process, by run id: what Celery counts as over while its child still lives
        self.lingering: dict[str, Run] = {}

    @cached_property
    def settings(self) -> Settings:
        return Settings.from_conf(self.app.conf)

    @cached_property
    def store(self) -> LockStore:
        settings = self.settings
        url, options = self._place()
        connect(url, options)  # sends nothing; what is wrong with them shows here, and a worker does not start
        return RedisStore(
            lambda: connect(url, options),
            prefix=settings.key_prefix,
            window_ms=milliseconds(settings.redelivery_window),
        )

    @property
    def lease_ms(self) -> int:
        return milliseconds(self.settings.lease)

    def wait_ms(self, eta_s: float, expires_s: float | None) -> int:
        """How long a message that starts in ``eta_s`` may keep its lock waiting: the queue lease, never beyond ``expires``."""
        wait_s = max(eta_s, 0.0) + self.settings.queue_lease
        return milliseconds(wait_s if expires_s is None else min(wait_s, expires_s))

    def give_back(self, ticket: Ticket) -> None:
        """Free a lock that was taken for a message which was not published after all."""
        try:
            if self.store.release(ticket):
                report.released(ticket, "publish failed")
        except StoreUnavailable as exc:
            report.unavailable(ticket, "release", exc, "the lock stays until its queue lease ends")

    def put_off_s(self, remaining_ms: int | None = None) -> float:
        """Seconds after which a message that cannot start now shall come again: what is left of the lease that is in its
        way (a whole one if nobody knows), and never more than half the visibility timeout.
        """
        transport = self.app.conf.broker_transport_options or {}
        visible_s = float(transport.get("visibility_timeout") or VISIBILITY_TIMEOUT)
        lease_s = self.settings.lease if remaining_ms is None else remaining_ms / 1000
        return max(0.05, min(lease_s, visible_s / 2))

    def seconds_until(self, moment: Any) -> float | None:
        """An ``eta`` or ``expires`` in any form that Celery takes -> seconds from now; ``None`` where it makes no sense."""
        if isinstance(moment, (int, float)):
            return float(moment)
        try:
            if isinstance(moment, str):
                moment = maybe_iso8601(moment)
            if isinstance(moment, datetime):
                aware = maybe_make_aware(moment, self.app.timezone)
                return float((aware - self.app.now().astimezone(aware.tzinfo)).total_seconds())
        except (ValueError, OverflowError):
            pass  # Celery itself refuses it when it publishes
        return None

    def _place(self) -> tuple[str, Mapping[str, Any]]:
        settings, conf = self.settings, self.app.conf
        if settings.redis_url:
            return settings.redis_url, settings.redis_options
        broker = conf.broker_write_url
        broker = broker[0] if isinstance(broker, (list, tuple)) and broker else broker
        if is_redis(broker):
            named = _of_sentinel(conf.broker_transport_options)
            return self._fallback("broker", broker, {**ssl_options(conf.broker_use_ssl), **named})
        if is_redis(conf.result_backend):
            named = _of_sentinel(conf.result_backend_transport_options)
            return self._fallback("result backend", conf.result_backend, {**ssl_options(conf.redis_backend_use_ssl), **named})
        raise ConfigurationError(
            "neither the broker nor the result backend is a Redis: "
            "set once_more_redis_url (CELERY_ONCE_MORE_REDIS_URL in Django), for example 'redis://localhost:6379/2'"
        )

    def _fallback(self, whose: str, url: str, options: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        logger.info("once_more_redis_url is not set: locks live in the %s's Redis, %s", whose, masked(url))
        return url, {**options, **self.settings.redis_options}


def _of_sentinel(transport_options: Mapping[str, Any] | None) -> dict[str, Any]:
    return {k: v for k, v in (transport_options or {}).items() if k in ("master_name", "sentinel_kwargs")}


def milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def runtime(app: Celery) -> Runtime:
    """The one of this app (a proxy stands for the app behind it)."""
    behind = getattr(app, "_get_current_object", None)
    app = behind() if behind is not None else app
    found: Runtime | None = vars(app).get(_ATTRIBUTE)
    return found if found is not None else vars(app).setdefault(_ATTRIBUTE, Runtime(app))
