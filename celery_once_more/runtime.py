"""What lives, one per Celery app: its settings and its lock store, made when first needed."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any

from celery import Celery
from celery.utils.time import maybe_iso8601, maybe_make_aware

from celery_once_more import brokers, report
from celery_once_more.exceptions import ConfigurationError, StoreUnavailable
from celery_once_more.locks import LockStore, Place
from celery_once_more.locks.connect import connect, is_redis, masked, options_of
from celery_once_more.locks.redis import RedisStore
from celery_once_more.options import Options
from celery_once_more.run import Run
from celery_once_more.settings import Settings
from celery_once_more.ticket import Ticket

logger = logging.getLogger(__name__)

_ATTRIBUTE = "_once_more_runtime"
#: publishes that were not answered, of which a process remembers so many
DOUBTFUL = 1000


class Runtime:
    def __init__(self, app: Celery) -> None:
        self.app = app
        #: in a worker's main process, by run id: what Celery counts as over while its child still lives
        self.lingering: dict[str, Run] = {}
        #: publishes that were not answered, and sent without a lock or not at all: a store that was only slow may take it yet
        self.doubtful: deque[Ticket] = deque(maxlen=DOUBTFUL)
        #: the main process of a worker of this app, once there is one
        self.worker_pid: int | None = None
        #: by queue, what :meth:`place` found
        self._places: dict[str, str] = {}

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

    @cached_property
    def broker(self) -> brokers.RedisBroker | None:
        return brokers.broker(self.app)

    def place(self, queue: str | None, eta_s: float = 0.0, *, by: Mapping[str, Any] = MappingProxyType({})) -> Place | None:
        """Where a message to this queue, which starts in ``eta_s``, can be looked for.

        Args:
            by: what it is published with; a connection of its own may lead to another broker.
        """
        own = by.get("connection") or by.get("producer")
        if own is not None and (self.broker is None or not self.broker.is_behind(own)):
            return None
        if self.broker is None or queue is None:
            return None
        name = self._places.get(queue) or self.broker.place(queue)
        if name is None:
            return None
        self._places[queue] = name
        return Place(name=name, eta_ms=max(0, round(eta_s * 1000)))

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

    def back_to_queue(self, run: Run) -> None:
        """The message of a run comes again: its lock waits for that.

        Raises:
            StoreUnavailable: the store did not answer; its lock ends with its lease.
        """
        self.store.requeue(run.ticket, run=run.run_id, hop=run.ticket.hop, wait_ms=self.queue_lease_ms(run.options),
                           place=self.place(run.ticket.queue))  # fmt: skip

    def give_back(self, ticket: Ticket) -> None:
        """Free a lock that was taken for a message which was not published after all."""
        try:
            if self.store.release(ticket):
                report.released(ticket, "publish failed")
        except StoreUnavailable as exc:
            report.unavailable(ticket, "release", exc, "the lock stays until its queue lease ends")

    def settle_doubts(self) -> None:
        """Free what publishes of this process took, perhaps, when the store did not answer them.

        Raises:
            StoreUnavailable: the store does not answer yet.
        """
        while self.doubtful:
            ticket = self.doubtful[0]
            if self.store.release(ticket):
                report.released(ticket, "publish failed")
            if ticket in self.doubtful:  # another thread may have been here
                self.doubtful.remove(ticket)

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
            return self._fallback("broker", broker, options_of(conf.broker_use_ssl, conf.broker_transport_options))
        if is_redis(conf.result_backend):
            options = options_of(conf.redis_backend_use_ssl, conf.result_backend_transport_options)
            return self._fallback("result backend", conf.result_backend, options)
        raise ConfigurationError(
            "neither the broker nor the result backend is a Redis: "
            "set once_more_redis_url (CELERY_ONCE_MORE_REDIS_URL in Django), for example 'redis://localhost:6379/2'"
        )

    def _fallback(self, whose: str, url: str, options: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        logger.info("once_more_redis_url is not set: locks live in the %s's Redis, %s", whose, masked(url))
        return url, {**options, **self.settings.redis_options}


def milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def runtime(app: Celery) -> Runtime:
    """The one of this app."""
    app = _behind(app)
    found: Runtime | None = vars(app).get(_ATTRIBUTE)
    return found if found is not None else vars(app).setdefault(_ATTRIBUTE, Runtime(app))


def forget(app: Celery) -> None:
    """Drop the one of this app, for a test that has changed its settings: the next look makes a new one."""
    vars(_behind(app)).pop(_ATTRIBUTE, None)


def _behind(app: Celery) -> Any:
    """A proxy stands for the app behind it."""
    behind = getattr(app, "_get_current_object", None)
    return behind() if behind is not None else app
