"""What a caller names an effect by -> the key of its row. Pure.

The row is found by a hash, 40 hexadecimal digits: it fits every index and collation, and is what the far side is given, which
learns nothing personal from it. The readable text stands beside it, for people.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any
from uuid import UUID

from celery_once_more.exceptions import ReservationError

#: of the readable text, which is plain ASCII
MAX_LENGTH = 255


@dataclass(frozen=True)
class Key:
    #: a JSON text: ``["charge", 42]``
    text: str
    dedup_key: str


def run_key(value: Any) -> Key:
    """Of an effect outside the database.

    Raises:
        ReservationError: it is empty, too long, or has a part that does not read the same everywhere.
    """
    return _key(value, b"once-more run")


def once_key(value: Any) -> Key:
    """Of a marker in the caller's transaction: another row than :func:`run_key` of the same value."""
    return _key(value, b"once-more once")


def value_of(text: str) -> Any:
    """What can be given as a key again."""
    value = json.loads(text)
    return tuple(value) if isinstance(value, list) else value


def _key(value: Any, kind: bytes) -> Key:
    if isinstance(value, (list, tuple)):
        if not value:
            raise ReservationError("a key must not be empty")
        plain: Any = [_part(part) for part in value]
    else:
        plain = _part(value)
    try:
        text = json.dumps(plain)
    except ValueError:  # a whole number of more digits than Python writes
        text = "9" * (MAX_LENGTH + 1)
    if len(text) > MAX_LENGTH:
        raise ReservationError(
            f"a key must have at most {MAX_LENGTH} characters as JSON, and this one has {len(text)}: {text[:40]}…; "
            "put an id, or a hash, in the place of its longest part"
        )
    return Key(text, hashlib.blake2b(text.encode("ascii"), digest_size=20, person=kind).hexdigest())


def _part(value: Any) -> str | int:
    """A UUID or a date counts as its text, which is what remains of it after a trip through JSON."""
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(timezone.utc)).isoformat()
    if isinstance(value, (UUID, date)):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ReservationError(
            f"a key is a string, a whole number, a UUID, a date, or a tuple of these; {value!r} is {_named(value)}, "
            "which does not read the same everywhere"
        )
    if value == "":
        raise ReservationError("a key, and each of its parts, must not be empty")
    return value


def _named(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__qualname__}"
