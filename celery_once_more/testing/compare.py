"""What is different between two looks at the world, told so that a reader sees what is doubled and what is missing."""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from decimal import Decimal
from math import isnan
from typing import Any

from celery_once_more.testing.errors import CrashTestError

#: told of one place; the rest is counted
MOST_TOLD = 5
_DJANGO_MODEL = ("django.db.models.base", "Model")


def snapshot(state: Callable[[], Any]) -> Any:
    """A copy of what ``state`` returns, which later changes of the world leave alone.

    Raises:
        CrashTestError: it raised, or what it returned cannot be compared.
    """
    try:
        seen = state()
    except Exception as exc:
        raise CrashTestError(f"state raised {type(exc).__name__}: {exc}") from exc
    culprit = _incomparable(seen)
    if culprit:
        raise CrashTestError(f"state returned {culprit}: return plain data, such as a dict or list")
    try:
        copied = copy.deepcopy(seen)
    except Exception as exc:
        raise CrashTestError(f"state returned what cannot be copied ({exc}): return plain data, such as a dict or list") from exc
    try:
        equal = bool(copied == seen)
    except Exception as exc:
        raise CrashTestError(
            f"state returned what cannot be compared ({exc}): return plain data, such as a dict or list (of an array, tolist())"
        ) from exc
    if not equal:
        raise CrashTestError(
            f"state returned what does not equal a copy of itself ({_short(seen)}): return plain data, such as a dict or list"
        )
    return copied


def _incomparable(value: Any) -> str:
    """Some part whose ``==`` does not ask what it holds, and what it asks; empty where there is none."""
    if isinstance(value, Mapping):
        parts: Any = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = value
    elif value is None or isinstance(value, (enum.Enum, type)):  # one object for each value
        return ""
    elif isinstance(value, (float, Decimal)):
        nan = value.is_nan() if isinstance(value, Decimal) else isnan(value)
        return f"{value}, which equals nothing, not even itself" if nan else ""
    elif getattr(type(value), "__eq__", None) is getattr(object, "__eq__"):  # noqa: B009
        return f"a {type(value).__name__}, which equals only itself"
    elif any((base.__module__, base.__name__) == _DJANGO_MODEL for base in type(value).__mro__):
        return f"a {type(value).__name__}, which equals any other of the same primary key, whatever they hold"
    else:
        return ""
    return next(filter(None, map(_incomparable, parts)), "")


def differences(clean: Any, now: Any) -> list[str]:
    """One line for each difference; none where the two are equal."""
    return [] if clean == now else list(_told("", clean, now)) or [f"{_short(now)} instead of {_short(clean)}"]


def _told(path: str, clean: Any, now: Any) -> Iterator[str]:
    at = f"{path}: " if path else ""
    if clean == now:
        return
    if isinstance(clean, Mapping) and isinstance(now, Mapping):
        for key in [*clean, *(key for key in now if key not in clean)]:
            inside = f"{path}.{key}" if path else str(key)
            if key not in now:
                yield f"{inside}: missing, it was {_short(clean[key])}"
            elif key not in clean:
                yield f"{inside}: {_short(now[key])}, where the undisturbed run left nothing"
            else:
                yield from _told(inside, clean[key], now[key])
    elif _many(clean) and _many(now):
        yield from _of_many(at, list(clean), list(now))
    elif _is_number(clean) and _is_number(now):
        yield f"{at}{now} instead of {clean}"
    else:
        yield f"{at}{_short(now)} instead of {_short(clean)}"


def _of_many(at: str, clean: list[Any], now: list[Any]) -> Iterator[str]:
    missing, more = _without(clean, now), _without(now, clean)
    if len(clean) != len(now):
        yield f"{at}{len(now)} instead of {len(clean)}"
    doubled = [item for item in more if item in clean]
    strange = [item for item in more if item not in clean]
    for word, items in (("doubled", doubled), ("missing", missing), ("not in the undisturbed run", strange)):
        for item in items[:MOST_TOLD]:
            yield f"{at}{word}: {_short(item)}"
        if len(items) > MOST_TOLD:
            yield f"{at}{word}: {len(items) - MOST_TOLD} more"
    if not missing and not more:
        yield f"{at}in another order"


def _without(items: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    left = list(others)
    found = []
    for item in items:
        if item in left:
            left.remove(item)
        else:
            found.append(item)
    return found


def _many(value: Any) -> bool:
    return isinstance(value, (Sequence, Set)) and not isinstance(value, (str, bytes))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "…"
