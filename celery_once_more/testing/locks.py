"""For tests of unique tasks: who holds a lock, as an assertion, and freeing all locks of an app. Needs no pytest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery, Task

from celery_once_more.exceptions import ConfigurationError
from celery_once_more.info import LockInfo, ticket_of
from celery_once_more.lock_types import PHASES, LockType
from celery_once_more.locks.redis import RedisStore
from celery_once_more.runtime import forget, runtime
from celery_once_more.task import UniqueTask
from celery_once_more.ticket import Ticket

#: a lock that every holder is in the way of
_ANY = LockType(name="any", refuse_publish="".join(PHASES.values()), refuse_start="".join(PHASES.values()))


def assert_locked(task: Task, /, *args: Any, **kwargs: Any) -> LockInfo:
    """Somebody holds the lock of a call with these arguments: a publish would meet him, or for a lock that is taken at the
    start, a run. Who it is, is returned.

    Raises:
        AssertionError: nobody does.
        ConfigurationError: the task has no lock, or its app runs tasks eagerly, which takes none.
        StoreUnavailable: the lock store did not answer.
    """
    __tracebackhide__ = True
    digest = _digest(task, args, kwargs)
    info: LockInfo | None = task.lock_info(*args, **kwargs)
    if info is None:
        raise AssertionError(f"{_call(task, args, kwargs)}: nobody holds its lock {digest}")
    return info


def assert_not_locked(task: Task, /, *args: Any, **kwargs: Any) -> None:
    """Nobody holds the lock of a call with these arguments.

    Raises:
        AssertionError: somebody does.
        ConfigurationError, StoreUnavailable: as :func:`assert_locked`.
    """
    __tracebackhide__ = True
    _digest(task, args, kwargs)
    info = task.lock_info(*args, **kwargs)
    if info is not None:
        holder = f"{info.holder}, which is {info.phase}, for {info.remaining:.0f} s more"
        raise AssertionError(f"{_call(task, args, kwargs)}: its lock {info.digest} is held by {holder}")


def release_all(app: Celery) -> int:
    """Free every lock under the key prefix of this app, whoever holds it, and say how many holders that were. For tests only:
    a run that goes on is not stopped.

    Raises:
        StoreUnavailable: the lock store did not answer.
    """
    store = runtime(app).store
    assert isinstance(store, RedisStore)
    freed = 0
    for digest in _held(store):
        everybody = Ticket(task="", task_id="", digest=digest, lock=_ANY, series=0, hop=0, queue=None)
        while (held := store.holder(everybody)) is not None:
            freed += store.free(held)
    return freed


def _held(store: RedisStore) -> list[str]:
    """Every digest in the store's index of deadlines. Which parts of it exist, is looked for, as most do not."""
    parts = re.compile(re.escape(store.keys.prefix) + r":\{[0-9a-f]{2}\}:due:\d+")
    escaped = re.sub(r"([*?\[\]\\])", r"\\\1", store.keys.prefix)
    client: Any = store.client
    found = {_text(key) for key in client.scan_iter(match=f"{escaped}:{{*}}:due:*", count=1000)}
    return [_text(digest) for key in sorted(found) if parts.fullmatch(key) for digest in client.zrange(key, 0, -1)]


@contextmanager
def locks_in(app: Celery, url: str) -> Iterator[None]:
    """The app keeps its locks in this Redis, until the end of the block."""
    app.conf.get("broker_url")  # a configuration that nobody has looked at yet is read now
    given = {"once_more_redis_url": url, "once_more_redis_options": {}}
    prefix = app.conf.prefix or ""  # Django's CELERY_: Celery 5.6 looks at that spelling first, 5.7 at the plain one
    given |= {f"{prefix}{name}".upper(): value for name, value in given.items() if prefix}
    own = app.conf.maps[0]
    before = {name: own[name] for name in given if name in own}
    own.update(given)
    forget(app)
    try:
        yield
    finally:
        for name in given:
            own.pop(name, None)
        own.update(before)
        forget(app)


def _digest(task: Task, args: Any, kwargs: Any) -> str:
    if not isinstance(task, Task):
        raise ConfigurationError(f"{task!r} is no task")
    if not isinstance(task, UniqueTask):
        raise ConfigurationError(f"task {task.name!r} has no lock; give it base=UniqueTask and lock=…")
    app = task._get_app()
    if app.conf.task_always_eager:
        raise ConfigurationError(f"task {task.name!r} runs eagerly (task_always_eager), which never takes a lock")
    return ticket_of(task, args, kwargs).digest


def _call(task: Task, args: Any, kwargs: Any) -> str:
    given = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
    return f"task {task.name!r}, called with ({given})"


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value
