"""Call -> digest, the identity of a lock. Pure: no store, no task, no clock.

A digest is BLAKE2b (128 bits, RFC 7693) over one canonical JSON text: format version, scope, queue, arguments.
Canonical means: what kombu's JSON encoder would send, with keys sorted and nothing that differs between processes.
Two calls whose messages carry the same arguments therefore have one digest, and ``1``, ``"1"`` and ``True`` have three.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kombu.utils.json import JSONEncoder

#: the format of what is hashed; a change of it is a new number, and old and new digests never meet
VERSION = 1

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
    """The named arguments (all of them for ``None``), a ``**kwargs`` laid open so that its members have names too."""
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    if names is None:
        return named
    missing = [name for name in names if name not in named]
    if missing:
        raise UnstableArgument(missing[0], "it is in lock_args, and the call does not give it")
    return {name: named[name] for name in names}


def choose(function: Callable[..., Any], bound: inspect.BoundArguments) -> Any:
    """What a ``lock_args`` callable says of the call; it takes the task's own parameters, in its own way of naming them."""
    try:
        parameters = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin without a signature
        return function(*bound.args, **bound.kwargs)
    try:
        parameters.bind(*bound.args, **bound.kwargs)
    except TypeError:
        return function(**select(bound, None))
    return function(*bound.args, **bound.kwargs)


def canonical(value: Any, path: str = "arguments") -> Any:
    """``value`` in the form it has after a trip through kombu's JSON, except that every key is already a string.

    Raises:
        UnstableArgument: no JSON form, or one that is not the same in every process.
    """
    if value is None or isinstance(value, (str, int)):  # bool is an int, and JSON keeps it apart
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise UnstableArgument(path, f"{value!r} is not JSON")
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
    if isinstance(key, int):
        return int.__repr__(key)
    if isinstance(key, float):
        return float.__repr__(key)
    raise UnstableArgument(path, f"its key {key!r} is not a JSON key")
