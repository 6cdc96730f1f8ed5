"""What lives, one per Celery app: its settings and its lock store, made when first needed."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any

from celery import Celery
from celery.utils.time import maybe_iso8601, maybe_make_aware

from celery_once_more import queues, report
from celery_once_more.exceptions import ConfigurationError, StoreUnavailable
from celery_once_more.locks import LockStore
from celery_once_more.locks.connect import connect, is_redis, masked, ssl_options
from celery_once_more.locks.redis import RedisStore
from celery_once_more.options import Options
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
        #: the main process of a worker of this app, once there is one
        self.worker_pid: int | None = None

    @property
    def runs_in_main_process(self) -> bool:
        """Whether this process is a worker's main process: what runs here has no child that it could outlive."""
        return self.worker_pid == os.getpid()

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

    def lease_ms(self, options: Options) -> int:
        """How long a run of these options keeps its lock without being renewed."""
        return milliseconds(options.lease or self.settings.lease)

    def queue_lease_ms(self, options: Options) -> int:
        """How long a message that goes back to its queue keeps its lock."""
        return milliseconds(options.queue_lease or self.settings.queue_lease)

    def wait_ms(self, options: Options, eta_s: float, expires_s: float | None) -> int:
        """How long a message that starts in ``eta_s`` may keep its lock waiting: the queue lease, never beyond ``expires``."""
        wait_s = max(eta_s, 0.0) + (options.queue_lease or self.settings.queue_lease)
        return milliseconds(wait_s if expires_s is None else min(wait_s, expires_s))

    def period_ms(self, options: Options, eta_s: float = 0.0) -> int:
        """The period of a message that starts in ``eta_s``; 0: its lock has none."""
        return milliseconds(max(eta_s, 0.0) + options.ttl) if options.ttl else 0

    def give_back(self, ticket: Ticket) -> None:
        """Free a lock that was taken for a message which was not published after all."""
        try:
            if self.store.release(ticket):
                report.released(ticket, "publish failed")
        except StoreUnavailable as exc:
            report.unavailable(ticket, "release", exc, "the lock stays until its queue lease ends")

    def held_s(self, seconds: float) -> float:
        """``seconds`` for which a worker may hold a message back: never more than half the broker's visibility timeout."""
        transport = self.app.conf.broker_transport_options or {}
        visible_s = float(transport.get("visibility_timeout") or VISIBILITY_TIMEOUT)
        return self.whole_s(max(0.05, min(seconds, visible_s / 2)))

    def whole_s(self, seconds: float) -> float:
        """``seconds`` in a form that the broker can delay a message by: rounded up, where it does so by whole ones."""
        return float(math.ceil(seconds)) if queues.delays_in_broker(self.app) else seconds

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
