"""Stores on a real Redis, and tickets for them, without an app."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b

from celery_once_more.lock_types import LOCK_TYPES
from celery_once_more.locks import Renew
from celery_once_more.locks.connect import connect
from celery_once_more.locks.redis import RedisStore
from celery_once_more.ticket import Ticket

LEASE_MS = 60_000
WAIT_MS = 3_600_000
WINDOW_MS = 7_200_000
PREFIX = "locks"
BUCKETS = range(256)


def ticket(lock: int | str = 0, *, series: int = 1, task_id: str | None = None, task: str = "shop.settle", **more) -> Ticket:
    """A ticket for the lock of this name; another ``series`` is another call for it."""
    digest = urlsafe_b64encode(blake2b(str(lock).encode(), digest_size=16).digest())[:22].decode()
    return Ticket(task=task, task_id=task_id or f"id-{lock}-{series}", digest=digest, lock=LOCK_TYPES["until_executed"],
                  series=series, hop=0, queue="celery", **more)  # fmt: skip


def store_at(url: str, *, window_ms: int = WINDOW_MS, patient: bool = True, **options) -> RedisStore:
    """``patient``: a server on a busy machine may take its time, which the package's own timeouts do not give it."""
    options = {"socket_timeout": 60, "socket_connect_timeout": 60} | options if patient else options
    return RedisStore(lambda: connect(url, options), prefix=PREFIX, window_ms=window_ms)


def acquire(store: RedisStore, of: Ticket, wait_ms: int = WAIT_MS) -> str:
    return store.acquire(of, wait_ms=wait_ms).verdict


def start(store: RedisStore, of: Ticket, run: str = "run", **how) -> str:
    return store.start(of, run=run, lease_ms=LEASE_MS, redelivered=False, **how).verdict


def through(store: RedisStore, of: Ticket) -> list[str]:
    """A call from its publish to its end, and what the store answered."""
    return [acquire(store, of), start(store, of), store.finish(of, run="run")]


THROUGH = ["admitted", "run", "freed"]


def acts(store: RedisStore, of: Ticket) -> dict:
    """Every act on one ticket, not yet done."""
    return {
        "acquire": lambda: store.acquire(of, wait_ms=WAIT_MS),
        "release": lambda: store.release(of),
        "start": lambda: store.start(of, run="run", lease_ms=LEASE_MS, redelivered=False),
        "finish": lambda: store.finish(of, run="run"),
        "requeue": lambda: store.requeue(of, run="run", hop=1, wait_ms=WAIT_MS),
        "confirm": lambda: store.confirm(of, hop=1, wait_ms=WAIT_MS),
        "look": lambda: store.look(of, run="run"),
    }


def lease(of: Ticket, run: str = "run", lease_ms: int = LEASE_MS) -> Renew:
    return Renew(ticket=of, run=run, lease_ms=lease_ms)


def renew(store: RedisStore, of: Ticket, run: str = "run") -> str:
    return store.renew([lease(of, run)])[0].verdict
