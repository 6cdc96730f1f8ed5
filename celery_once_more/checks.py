"""The checks of single option values: each takes who says it, and the value; gives it checked, or a ``ConfigurationError``."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from celery import Task

from celery_once_more.exceptions import ConfigurationError
from celery_once_more.lock_types import LOCK_TYPES, LockType
from celery_once_more.settings import OUTAGE_POLICIES, seconds

SIDES = ("client", "server")
#: a strategy, and the sides on which it makes sense
STRATEGIES: dict[str, tuple[str, ...]] = {"log": SIDES, "raise": SIDES, "reschedule": SIDES}


def listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def instead(word: Any, words: Iterable[str]) -> str:
    """The nearest right word, and all there are."""
    words = list(words)
    close = difflib.get_close_matches(str(word), words, 1, 0.6)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}There is: {listed(map(repr, words))}"


def lock(who: str, value: Any) -> LockType | None:
    if value is None:
        return None
    if not isinstance(value, str) or value not in LOCK_TYPES:
        raise ConfigurationError(f"{who}: lock={value!r} is no lock; {instead(value, LOCK_TYPES)}, or None")
    return LOCK_TYPES[value]


def duration(who: str, name: str, value: Any) -> float | None:
    return None if value is None else seconds(f"{who}: {name}", value)


def count(who: str, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{who}: {name} must be a whole number of at least 1, not {value!r}")
    return value


def flag(who: str, name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{who}: {name} must be True or False, not {value!r}")
    return value


def scope(who: str, value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigurationError(f"{who}: lock_scope must be a name that is not empty, not {value!r}")
    return value


def lock_args(who: str, value: Any, task: type[Task]) -> tuple[str, ...] | Callable[..., Any] | None:
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
                raise ConfigurationError(f"{who}: lock_args names {name!r}, which the task does not take; {instead(name, names)}")
    return tuple(value)


def strategies(who: str, value: Any, lock: LockType | None) -> tuple[str, str]:
    """For each side; a bare name holds where it makes sense, and the other side keeps its default."""
    sides = SIDES if lock is None or lock.at_publish else ("server",)
    chosen = {"client": "log", "server": lock.server if lock is not None else "log"}
    if isinstance(value, Mapping):
        for side, strategy in value.items():
            if side not in SIDES:
                raise ConfigurationError(f"{who}: on_conflict has no side {side!r}; {instead(side, SIDES)}")
            if side not in sides:
                raise ConfigurationError(
                    f"{who}: on_conflict has no side {side!r} with this lock, whose publish asks nothing; give it for 'server'"
                )
            if side not in STRATEGIES[_strategy(who, strategy)]:
                raise ConfigurationError(f"{who}: on_conflict={strategy!r} makes no sense on the side {side!r}")
            chosen[side] = strategy
    elif value is not None:
        chosen.update(dict.fromkeys((side for side in STRATEGIES[_strategy(who, value)] if side in sides), value))
    return chosen["client"], chosen["server"]


def _strategy(who: str, value: Any) -> str:
    if not isinstance(value, str) or value not in STRATEGIES:
        raise ConfigurationError(f"{who}: on_conflict={value!r} is no strategy; {instead(value, STRATEGIES)}")
    return value


def outage(who: str, value: Any) -> str | None:
    if value is not None and value not in OUTAGE_POLICIES:
        raise ConfigurationError(f"{who}: on_outage={value!r} is no policy; {instead(value, OUTAGE_POLICIES)}")
    return value


def as_json(said: Mapping[str, Any]) -> dict[str, Any]:
    """Checked options as a message can carry them."""
    return {name: value.total_seconds() if isinstance(value, timedelta) else value for name, value in said.items()}
