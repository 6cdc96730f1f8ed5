"""What is kept of a payload and of a result: a hash of the one, the JSON text of the other. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from celery_once_more.digest import UnstableArgument, canonical
from celery_once_more.exceptions import ReservationError

#: bytes of a result's JSON text
MAX_RESULT = 64 * 1024
#: characters of a final error's message
MAX_MESSAGE = 1000


def fingerprint(payload: Any) -> str | None:
    """Of what a call would do; ``None`` says nothing, and is compared with nothing.

    Raises:
        ReservationError: it has no stable JSON form.
    """
    if payload is None:
        return None
    try:
        text = json.dumps(canonical(payload, "fingerprint"), sort_keys=True, separators=(",", ":"))
    except UnstableArgument as exc:
        raise ReservationError(f"{exc.args[0]} has no stable JSON form: {exc.args[1]}") from None
    return hashlib.blake2b(text.encode("ascii"), digest_size=20).hexdigest()


def encode(result: Any) -> str:
    """
    Raises:
        ReservationError: it is not JSON, or too long.
    """
    try:
        text = json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise ReservationError(
            f"the result is not JSON, and is not stored ({exc}): return what json.dumps takes, or None"
        ) from exc
    if len(text) > MAX_RESULT:
        raise ReservationError(
            f"the result is {len(text)} bytes as JSON, more than the {MAX_RESULT} that are stored: return an id of it"
        )
    return text


def decode(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def encode_error(error: BaseException) -> str:
    """Its type and message; it cannot be rebuilt in a process that does not know its class."""
    try:
        message = str(error)
    except Exception:  # somebody's own __str__
        message = "?"
    return json.dumps([f"{type(error).__module__}.{type(error).__qualname__}", message[:MAX_MESSAGE]])
