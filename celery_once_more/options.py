"""What a task says about its lock: read from its class when it is bound, checked, and frozen."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

from celery import Task

from celery_once_more.exceptions import ConfigurationError
from celery_once_more.lock_types import LOCK_TYPES, LockType
from celery_once_more.settings import OUTAGE_POLICIES

STRATEGIES = ("log", "raise")
SIDES = ("client", "server")
NAMES = ("lock", "lock_args", "on_conflict", "on_outage")
#: options that may also be given to one call
PER_CALL = ("lock", "on_conflict", "on_outage")
#: names that later versions will know; accepting one silently would promise what is not there
RESERVED = (
    "lock_scope", "lock_ttl", "lock_lease", "lock_queue_lease", "lock_limit", "lock_timeout",
    "unique_across_queues", "reschedule_countdown", "strict_args",
)  # fmt: skip
#: names that Celery's own tasks have; looked up, not asked for: ``getattr(Task, "app")`` would bind the class
_CELERYS = frozenset(name for base in Task.__mro__ for name in vars(base))
_ROUTINES = (FunctionType, classmethod, staticmethod, property)


@dataclass(frozen=True, kw_only=True)
class Options:
    lock: LockType | None
    #: parameter names; a callable given the call's arguments; ``None``: all arguments count
    lock_args: tuple[str, ...] | Callable[..., Any] | None
    #: what becomes of a duplicate on the publishing side
    client: str
    #: what becomes of a duplicate in the worker
    server: str
    #: ``"raise"``, ``"proceed"``, or ``None`` for the setting
    on_outage: str | None

    @classmethod
    def of(cls, task: type[Task]) -> Options:
        """Read them from a bound task class.

        Raises:
            ConfigurationError: names the task, the option, and the nearest right word.
        """
        who = f"task {task.name!r}"
        _refuse_unknown(who, task)
        client, server = _strategies(who, task.on_conflict, ("log", "log"))
        return cls(
            lock=_lock(who, task.lock),
            lock_args=_lock_args(who, task.lock_args, task),
            client=client,
            server=server,
            on_outage=_outage(who, task.on_outage),
        )

    def for_call(self, task_name: str, options: dict[str, Any]) -> tuple[Options, dict[str, Any]]:
        """These options with those of one call over them, and the call's options without ours.

        Raises:
            ConfigurationError: as for a task.
        """
        if not options:
            return self, options
        who = f"a call of task {task_name!r}"
        unfit = next((name for name in options if name in RESERVED or name == "lock_args"), None)
        if unfit:
            raise ConfigurationError(f"{who}: {unfit} cannot be given per call; {_listed(PER_CALL)} can")
        for name in options.keys() - set(PER_CALL):
            close = difflib.get_close_matches(name, PER_CALL, 1, 0.8)
            if close:
                raise ConfigurationError(f"{who}: unknown option {name}; did you mean {close[0]}?")
        ours = {name: options[name] for name in PER_CALL if name in options}
        if not ours:
            return self, options
        changed = self
        if "lock" in ours:
            changed = replace(changed, lock=_lock(who, ours["lock"]))
        if "on_conflict" in ours:
            if isinstance(ours["on_conflict"], Mapping) and "server" in ours["on_conflict"]:
                raise ConfigurationError(f"{who}: on_conflict can be given per call for the client side only")
            client, server = _strategies(who, ours["on_conflict"], (self.client, self.server))
            changed = replace(changed, client=client, server=server)
        if "on_outage" in ours:
            changed = replace(changed, on_outage=_outage(who, ours["on_outage"]))
        return changed, {name: value for name, value in options.items() if name not in ours}


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def _instead(word: Any, words: Iterable[str]) -> str:
    words = list(words)
    close = difflib.get_close_matches(str(word), words, 1, 0.6)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}There is: {_listed(map(repr, words))}"


def _refuse_unknown(who: str, task: type[Task]) -> None:
    """Refuse what looks like an option that is not there, in the class or in what it inherits up to Celery's own.

    A method is no option, except where it was given to ``@app.task``; and a name that begins with another letter, as
    ``clock`` and ``unlock`` do, is a name of the task's own.
    """
    for base in task.__mro__:
        for name, value in vars(base).items():
            if name in NAMES or name in _CELERYS or name.startswith("_"):
                continue
            if isinstance(value, _ROUTINES) and "_decorated" not in vars(base):
                continue
            if name in RESERVED:
                raise ConfigurationError(f"{who}: this version has no option {name}. There is: {_listed(NAMES)}")
            close = difflib.get_close_matches(name, NAMES, 1, 0.8)
            if close and close[0][0] == name[0]:
                raise ConfigurationError(f"{who}: unknown option {name}; did you mean {close[0]}?")


def _lock(who: str, value: Any) -> LockType | None:
    if value is None:
        return None
    if not isinstance(value, str) or value not in LOCK_TYPES:
        raise ConfigurationError(f"{who}: lock={value!r} is no lock; {_instead(value, LOCK_TYPES)}, or None")
    return LOCK_TYPES[value]


def _lock_args(who: str, value: Any, task: type[Task]) -> tuple[str, ...] | Callable[..., Any] | None:
    if value is None or callable(value):
        return value
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        hint = f"; did you mean [{value!r}]?" if isinstance(value, str) else ""
        raise ConfigurationError(f"{who}: lock_args must be a list of parameter names or a callable, not {value!r}{hint}")
    parameters = list(inspect.signature(task.run).parameters.values())
    if not isinstance(inspect.getattr_static(task, "run"), staticmethod):
        parameters = parameters[1:]  # a method, read from the class: the task itself comes first
    names = [p.name for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
    if set(value) & {p.name for p in parameters} - set(names):
        raise ConfigurationError(f"{who}: lock_args={list(value)} names all of its **kwargs; name the members that count")
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        for name in value:
            if name not in names:
                raise ConfigurationError(
                    f"{who}: lock_args names {name!r}, which the task does not take; {_instead(name, names)}"
                )
    return tuple(value)


def _strategies(who: str, value: Any, default: tuple[str, str]) -> tuple[str, str]:
    if value is None:
        return default
    given = value if isinstance(value, Mapping) else dict.fromkeys(SIDES, value)
    for side, strategy in given.items():
        if side not in SIDES:
            raise ConfigurationError(f"{who}: on_conflict has no side {side!r}; {_instead(side, SIDES)}")
        if not isinstance(strategy, str) or strategy not in STRATEGIES:
            raise ConfigurationError(f"{who}: on_conflict={strategy!r} is no strategy; {_instead(strategy, STRATEGIES)}")
    return given.get("client", default[0]), given.get("server", default[1])


def _outage(who: str, value: Any) -> str | None:
    if value is not None and value not in OUTAGE_POLICIES:
        raise ConfigurationError(f"{who}: on_outage={value!r} is no policy; {_instead(value, OUTAGE_POLICIES)}")
    return value
