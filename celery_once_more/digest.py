"""Call -> digest, the identity of a lock. Pure: no store, no task, no clock.

A digest is BLAKE2b (128 bits, RFC 7693) over one canonical JSON text: format version, scope, queue, arguments.
Canonical means: what kombu's JSON encoder would send, with keys sorted and nothing that differs between processes.
Two calls whose messages carry the same arguments therefore have one digest, and ``1``, ``"1"`` and ``True`` have three.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kombu.utils.json import JSONEncoder

#: the format of what is hashed; a change of it is a new number, and old and new digests never meet
VERSION = 1

#: where the members of a task's ``**kwargs`` stand among its arguments: no parameter has this name
MORE = "**"
#: how an error names what a ``lock_args`` callable returned
CHOSEN = "lock_args(…)"

_encode_other: Callable[[Any], Any] = JSONEncoder().default
_dumps = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False).encode


class UnstableArgument(Exception):
    """``args``: where the value stands (``payload['items'][3]``), and what is wrong with it."""


def digest(*, scope: str, queue: str | None, arguments: Any) -> str:
    """22 characters of URL-safe base64, for arguments that went through :func:`canonical`."""
    text = _dumps([VERSION, scope, queue, arguments])
    return urlsafe_b64encode(hashlib.blake2b(text.encode("ascii"), digest_size=16).digest())[:22].decode("ascii")


def bind(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
    """The call as the task's function would take it, defaults spelled out.

    Raises:
        TypeError: the function does not take these arguments.
    """
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound


def select(bound: inspect.BoundArguments, names: Sequence[str] | None) -> dict[str, Any]:
    """The named arguments, the members of a ``**kwargs`` among them; for ``None`` all of them, those members under ``**``.

    Raises:
        UnstableArgument: the call does not give one of the names.
    """
    named, more = _named(bound)
    if names is None:
        return {**named, MORE: more} if more else named
    given = {**more, **named}
    missing = [name for name in names if name not in given]
    if missing:
        raise UnstableArgument(missing[0], "it is in lock_args, and the call does not give it")
    return {name: given[name] for name in names}


def _named(bound: inspect.BoundArguments) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters, and the members of ``**kwargs``: apart, because both may have one of the same name."""
    named, more = dict(bound.arguments), {}
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            more = named.pop(name)
    return named, more


def choose(function: Callable[..., Any], bound: inspect.BoundArguments) -> Any:
    """What a ``lock_args`` callable says of the call; it takes the task's own parameters, in its own way of naming them.

    Raises:
        UnstableArgument: it raised; its error is the cause.
    """
    try:
        if _takes_positions(function, bound):
            return function(*bound.args, **bound.kwargs)
        named, more = _named(bound)
        return function(**more, **named)
    except Exception as exc:
        raise UnstableArgument(CHOSEN, f"it raised {exc!r}") from exc


def _takes_positions(function: Callable[..., Any], bound: inspect.BoundArguments) -> bool:
    try:
        parameters = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin without a signature
        return True
    try:
        parameters.bind(*bound.args, **bound.kwargs)
    except TypeError:
        return False
    return True


def canonical(value: Any, path: str = "arguments") -> Any:
    """``value`` in the form it has after a trip through kombu's JSON, except that every key is already a string.

    Raises:
        UnstableArgument: no JSON form, or one that is not the same in every process.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float)):  # bool is an int, and JSON keeps it apart
        _number(value, path)
        return value
    try:
        if isinstance(value, (list, tuple)):
            return [canonical(item, f"{path}[{i}]") for i, item in enumerate(value)]
        if isinstance(value, Mapping) and isinstance(value, dict):
            return _canonical_dict(value, path)
        try:
            encoded = _encode_other(value)
        except TypeError:
            raise UnstableArgument(path, f"{type(value).__qualname__} cannot be sent as JSON") from None
        except RecursionError:
            raise
        except Exception as exc:  # of its own __json__, or of what was registered for its class
            raise UnstableArgument(path, f"the JSON form of {type(value).__qualname__} raised {exc!r}") from exc
        return canonical(encoded, path)
    except RecursionError:
        raise UnstableArgument(path.split("[")[0], "it contains itself, or is nested too deeply") from None


def _canonical_dict(value: dict[Any, Any], path: str) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in value.items():
        text = _key(key, path)
        if text in plain:
            raise UnstableArgument(path, f"two of its keys are {text!r} in JSON")
        plain[text] = canonical(item, f"{path}[{key!r}]")
    return plain


def _key(key: Any, path: str) -> str:
    if isinstance(key, str):
        return key
    if key is True or key is False or key is None:
        return {True: "true", False: "false", None: "null"}[key]
    if isinstance(key, (int, float)):
        return _number(key, path)
    raise UnstableArgument(path, f"its key {key!r} is not a JSON key")


def _number(value: float, path: str) -> str:
    """Its JSON text."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UnstableArgument(path, f"{value!r} is not JSON")
        return float.__repr__(value)
    try:
        return int.__repr__(value)
    except ValueError:
        raise UnstableArgument(path, "it is a whole number of more digits than Python writes") from None
