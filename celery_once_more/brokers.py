"""Cheap, exact questions to a broker: which messages stand in this queue, or in a worker's hands?

Only a Redis can be asked: kombu keeps a queue as one list per priority, and what was delivered and not acknowledged in one
hash for all queues. Of anything longer than a glance takes in the answer is "unknown", and so it is of what this app may not
look at. Elsewhere (``None``) the queue lease decides.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from celery import Celery
from kombu.transport.redis import Channel
from redis.exceptions import RedisError

from celery_once_more import queues
from celery_once_more.locks.connect import connect, is_redis, options_of

logger = logging.getLogger(__name__)

#: messages that one look takes in, and their size in bytes
MESSAGES, BYTES = 1000, 4_000_000
#: letters that say which broker is meant
MARK = 4


class RedisBroker:
    """The broker of one app, for reading only, with a client of its own: kombu's would wait without end."""

    def __init__(self, app: Celery, url: str) -> None:
        transport: Mapping[str, Any] = app.conf.broker_transport_options or {}
        self.mark = mark(app.connection_for_write())
        self._app = app
        self._client = connect(url, options_of(app.conf.broker_use_ssl, transport))
        self._prefix = transport.get("global_keyprefix", Channel.global_keyprefix)
        self._unacked = self._prefix + transport.get("unacked_key", Channel.unacked_key)
        self._sep = transport.get("sep", Channel.sep)
        self._steps = transport.get("priority_steps", Channel.priority_steps)
        self._refused = False

    def is_behind(self, way: Any) -> bool:
        """Whether a kombu connection, or producer, leads to this broker."""
        return self.mark == mark(way if hasattr(way, "as_uri") else way.connection)

    def place(self, queue: str) -> str | None:
        """How a record says where its message is; ``None`` where it could be anywhere else."""
        return f"{self.mark}{queue}" if queues.is_one_list(self._app, queue) else None

    def queue(self, place: str) -> str | None:
        """The queue that :meth:`place` was made of; ``None``: it stands in another broker."""
        return place[MARK:] if place.startswith(self.mark) else None

    def messages(self, names: Iterable[str]) -> dict[str, frozenset[str] | None]:
        """The task ids of what stands in each of these queues or in a worker's hands; ``None``: unknown."""
        lists = {name: [self._list(name, step) for step in self._steps] for name in sorted(set(names))}
        unknown: dict[str, frozenset[str] | None] = dict.fromkeys(lists)
        try:
            short = self._short(lists)
            return unknown | self._read({name: lists[name] for name in short})
        except (RedisError, OSError) as exc:
            self._say_once(exc)
            return unknown

    def _short(self, lists: Mapping[str, list[str]]) -> list[str]:
        """The queues that can be read at a glance, together with what is in workers' hands; none where that is too much."""
        keys = [self._unacked, *(key for each in lists.values() for key in each)]
        with self._client.pipeline(transaction=False) as pipe:
            pipe.hlen(keys[0])
            for key in keys[1:]:
                pipe.llen(key)
            for key in keys:
                pipe.memory_usage(key, samples=5)
            answers = pipe.execute()
        sizes = dict(zip(keys, zip(answers[: len(keys)], answers[len(keys) :], strict=True), strict=True))
        left, room = MESSAGES, BYTES
        short = []
        for name, each in (("", [self._unacked]), *lists.items()):
            length, size = (sum(sizes[key][i] or 0 for key in each) for i in (0, 1))
            if length <= left and size <= room:
                left, room = left - length, room - size
                short.append(name)
            elif not name:
                return []
        return short[1:]

    def _read(self, lists: Mapping[str, list[str]]) -> dict[str, frozenset[str] | None]:
        """At one moment: a message that moves from one of them to another is in one of them."""
        if not lists:
            return {}
        with self._client.pipeline(transaction=True) as pipe:
            for each in lists.values():
                for key in each:
                    pipe.lrange(key, 0, MESSAGES)
            pipe.hvals(self._unacked)
            answers = pipe.execute()
        delivered = {_id(json.loads(raw)[0]) for raw in answers.pop()}
        found: dict[str, frozenset[str] | None] = {}
        for name, each in lists.items():
            read, answers = answers[: len(each)], answers[len(each) :]
            whole = all(len(messages) <= MESSAGES for messages in read)
            waiting = {_id(json.loads(raw)) for messages in read for raw in messages}
            found[name] = frozenset(waiting | delivered) if whole else None
        return found

    def _list(self, queue: str, step: int) -> str:
        return f"{self._prefix}{queue}{self._sep}{step}" if step else f"{self._prefix}{queue}"

    def _say_once(self, exc: Exception) -> None:
        if not self._refused:
            self._refused = True
            logger.warning("the broker's queues cannot be looked at (%s: %s): whether a waiting message is gone is unknown, "
                           "and its lock ends with its queue lease", type(exc).__name__, exc)  # fmt: skip


def _id(message: Mapping[str, Any]) -> str:
    """The task id, in both of Celery's message protocols."""
    return str((message.get("headers") or {}).get("id") or (message.get("properties") or {}).get("correlation_id"))


def mark(connection: Any) -> str:
    """What tells one broker from another, for a kombu connection; database 0 may be spelled or not."""
    place = connection.as_uri().rstrip("/").removesuffix("/0")
    return hashlib.blake2b(place.encode(), digest_size=MARK // 2).hexdigest()


def broker(app: Celery) -> RedisBroker | None:
    """The broker that this app publishes to, where it can be asked: one Redis, and not the first of several that answers."""
    url = app.conf.broker_write_url
    if not is_redis(url) or (";" in url and not url.startswith("sentinel")):
        return None
    if (app.conf.broker_transport_options or {}).get("ack_emulation") is False:  # what was delivered is kept nowhere
        return None
    return RedisBroker(app, url)
