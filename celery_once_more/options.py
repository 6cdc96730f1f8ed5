"""What a task says about its lock: read from its class when it is bound, checked, and frozen.

The checks of single values stand in ``checks.py``; here is which options there are, and how they go together.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

from celery import Task

from celery_once_more import checks
from celery_once_more.exceptions import ConfigurationError
from celery_once_more.lock_types import LockType
from celery_once_more.settings import seconds

#: every option, with its default; each can also be given to one call
DEFAULTS: dict[str, Any] = {
    "lock": None,
    "lock_args": None,
    "lock_scope": None,
    "unique_across_queues": False,
    "lock_ttl": None,
    "lock_lease": None,
    "lock_queue_lease": None,
    "lock_limit": 1,
    "lock_timeout": 0,
    "on_conflict": None,
    "reschedule_countdown": 5,
    "on_outage": None,
    "strict_args": False,
}
#: options of a call that its worker must know: they travel in the ticket
IN_WORKER = ("on_conflict", "lock_ttl", "lock_lease", "lock_queue_lease", "reschedule_countdown", "on_outage")
#: options that only some locks have
_FITS = {
    "lock_ttl": "until_expired",
    "lock_limit": "while_executing",
    "lock_timeout": "a lock that is taken at the publish",
}
#: names that Celery's own tasks have; looked up, not asked for: ``getattr(Task, "app")`` would bind the class
_CELERYS = frozenset(name for base in Task.__mro__ for name in vars(base))
_ROUTINES = (FunctionType, classmethod, staticmethod, property)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Durations are seconds; ``None``: as the setting says."""

    lock: LockType | None
    #: parameter names; a callable given the call's arguments; ``None``: all arguments count
    lock_args: tuple[str, ...] | Callable[..., Any] | None
    #: what the digest is made for; ``None``: the task's name
    scope: str | None
    #: the queue does not count
    across_queues: bool
    #: the period of ``until_expired``; 0: none
    ttl: float
    lease: float | None
    queue_lease: float | None
    #: how long a publisher waits for a held lock
    timeout: float
    #: what becomes of a duplicate on the publishing side
    client: str
    #: what becomes of a duplicate in the worker
    server: str
    #: of the first time that a message is rescheduled
    countdown: float
    #: ``"raise"`` or ``"proceed"``
    on_outage: str | None
    strict: bool
    #: for one call: what its worker must know
    said: Mapping[str, Any] = field(default_factory=dict)
    #: as written
    given: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, task: type[Task]) -> Options:
        """Read them from a bound task class.

        Raises:
            ConfigurationError: names the task, the option, and the nearest right word.
        """
        who = f"task {task.name!r}"
        _refuse_unknown(who, task)
        return _build(who, {name: getattr(task, name) for name in DEFAULTS}, task)

    def for_call(self, task: Task, options: dict[str, Any]) -> tuple[Options, dict[str, Any]]:
        """These options with those of one call over them, and the call's options without ours.

        Raises:
            ConfigurationError: as for a task.
        """
        if not options:
            return self, options
        ours = {name: value for name, value in options.items() if name in DEFAULTS}
        for name in options.keys() - ours.keys():
            close = difflib.get_close_matches(name, DEFAULTS, 1, 0.8)
            if close and close[0][0] == name[0]:
                raise ConfigurationError(f"a call of task {task.name!r}: unknown option {name}; did you mean {close[0]}?")
        if not ours:
            return self, options
        said = {name: ours[name] for name in IN_WORKER if name in ours}
        merged = replace(self._with(f"a call of task {task.name!r}", task, ours), said=checks.as_json(said))
        return merged, {name: value for name, value in options.items() if name not in ours}

    def for_message(self, task: Task, lock: LockType, said: Mapping[str, Any]) -> Options:
        """What counts in the worker, for a message whose ticket says which lock it has, and what its call said.

        Raises:
            ConfigurationError: it says what does not go with its lock, or with this version.
        """
        if not said and self.lock is not None and lock.name == self.lock.name:
            return self
        who = f"a ticket of task {task.name!r}"
        given = {**_fitted(self.given, lock), **{name: value for name, value in said.items() if value is not None}}
        return replace(
            self,
            lock=lock,
            ttl=(lock.kept and checks.duration(who, "lock_ttl", given["lock_ttl"])) or 0.0,
            server=checks.strategies(who, given["on_conflict"], lock)[1],
            lease=checks.duration(who, "lock_lease", given["lock_lease"]),
            queue_lease=checks.duration(who, "lock_queue_lease", given["lock_queue_lease"]),
            countdown=seconds(f"{who}: reschedule_countdown", given["reschedule_countdown"]),
            on_outage=checks.outage(who, given["on_outage"]),
            said=said,
        )

    def _with(self, who: str, task: Task, ours: Mapping[str, Any]) -> Options:
        given = _fitted(self.given, checks.lock(who, ours["lock"])) if "lock" in ours else self.given
        return _build(who, {**given, **ours}, type(task), insisted=ours)


def _build(who: str, given: Mapping[str, Any], task: type[Task], *, insisted: Collection[str] = ()) -> Options:
    """Check them one by one, and together; of a task without a lock, only those ``insisted`` on must make sense."""
    given = {name: DEFAULTS[name] if value is None else value for name, value in given.items()}
    lock = checks.lock(who, given["lock"])
    ttl = checks.duration(who, "lock_ttl", given["lock_ttl"])
    limit = checks.count(who, "lock_limit", given["lock_limit"])
    timeout = given["lock_timeout"] and seconds(f"{who}: lock_timeout", given["lock_timeout"])
    client, server = checks.strategies(who, given["on_conflict"], lock)
    if lock is not None and lock.kept and ttl is None:
        raise ConfigurationError(f"{who}: lock={lock.name!r} needs lock_ttl, the seconds (or timedelta) of its period")
    for name in _unfit(given, lock):
        if lock is not None or name in insisted:
            held = "without a lock" if lock is None else f"with lock={lock.name!r}"
            raise ConfigurationError(f"{who}: {name} makes no sense {held}; it is for {_FITS[name]}")
    return Options(
        lock=replace(lock, limit=limit) if lock is not None else None,
        lock_args=checks.lock_args(who, given["lock_args"], task),
        scope=checks.scope(who, given["lock_scope"]),
        across_queues=checks.flag(who, "unique_across_queues", given["unique_across_queues"]),
        ttl=ttl or 0.0,
        lease=checks.duration(who, "lock_lease", given["lock_lease"]),
        queue_lease=checks.duration(who, "lock_queue_lease", given["lock_queue_lease"]),
        timeout=float(timeout),
        client=client,
        server=server,
        countdown=seconds(f"{who}: reschedule_countdown", given["reschedule_countdown"]),
        on_outage=checks.outage(who, given["on_outage"]),
        strict=checks.flag(who, "strict_args", given["strict_args"]),
        given=given,
    )


def _fitted(given: Mapping[str, Any], lock: LockType | None) -> dict[str, Any]:
    """What a task says for its own lock, without what makes no sense for another one."""
    fitted = {**given, **{name: DEFAULTS[name] for name in _unfit(given, lock)}}
    if isinstance(fitted["on_conflict"], Mapping) and lock is not None and not lock.at_publish:
        fitted["on_conflict"] = {side: s for side, s in fitted["on_conflict"].items() if side != "client"}
    return fitted


def _unfit(given: Mapping[str, Any], lock: LockType | None) -> list[str]:
    """Options that are given, and make no sense for this lock."""
    fits = {
        "lock_ttl": lock is not None and lock.kept,
        "lock_limit": lock is not None and lock.limited,
        "lock_timeout": lock is not None and lock.at_publish,
    }
    return [name for name, fit in fits.items() if not fit and given[name] != DEFAULTS[name]]


def _refuse_unknown(who: str, task: type[Task]) -> None:
    """Refuse what looks like an option that is not there, in the class or in what it inherits up to Celery's own.

    A method is no option, except where it was given to ``@app.task``; and a name that begins with another letter, as
    ``clock`` and ``unlock`` do, is a name of the task's own.
    """
    for base in task.__mro__:
        for name, value in vars(base).items():
            if name in DEFAULTS or name in _CELERYS or name.startswith("_"):
                continue
            if isinstance(value, _ROUTINES) and "_decorated" not in vars(base):
                continue
            close = difflib.get_close_matches(name, DEFAULTS, 1, 0.8)
            if close and close[0][0] == name[0]:
                raise ConfigurationError(f"{who}: unknown option {name}; did you mean {close[0]}?")
