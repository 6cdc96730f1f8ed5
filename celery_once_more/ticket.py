"""Proof of admission <-> message headers. The only file that knows the wire format.

A ticket names one message of one call at the lock store. The broker is trusted: there is no signature over it;
what does not fit the message it came with counts as no ticket at all.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from celery_once_more.lock_types import LOCK_TYPES, LockType

logger = logging.getLogger(__name__)

#: the header of the ticket, the one in which a worker's main process notes the id of the run, and how often a message was
#: rescheduled
HEADER = "once_more"
RUN_HEADER = "once_more_run"
TRIES_HEADER = "once_more_tries"
HEADERS = frozenset((HEADER, RUN_HEADER, TRIES_HEADER))
VERSION = 1
#: bits of a series, and of the hop behind it, in the number that the done memory keeps (redis-py sends it as text)
SERIES_BITS, HOP_BITS = 43, 20
_DIGEST = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Ticket:
    task: str
    task_id: str
    digest: str
    lock: LockType
    #: one call with all its retries and redeliveries; the owner of a holding
    series: int
    #: one message of the call: 0 at first, one more per retry
    hop: int
    queue: str | None
    #: the lock was taken at the publish: its message is never dropped for lack of it
    admitted: bool = True
    #: the message came with it; else it was made up for a message that had none, the same at every delivery
    known: bool = True
    #: the call has run: its retries are its own, and never meet a strategy
    ran: bool = False
    #: end of the lock's period in ms on the store's clock; 0: it has none, or the publish did not ask the store
    stop: int = 0
    #: options of this one call that its worker needs
    said: Mapping[str, Any] = field(default_factory=dict)

    @property
    def done_member(self) -> str:
        """What the done memory keeps of a call that is over."""
        return str(self.series << HOP_BITS)

    @property
    def spent_member(self) -> str:
        """What the done memory keeps of a message that a retry has replaced."""
        if self.hop + 1 < 1 << HOP_BITS:
            return str((self.series << HOP_BITS) + self.hop + 1)
        return f"{self.series}:{self.hop}"

    def meets_strategy(self, *, redelivered: bool) -> bool:
        """At its start, another call in the way is a conflict; else, and where it may have run before, it is put off."""
        asks = not self.admitted or self.lock.at_start
        return asks and not self.ran and not (redelivered and self.known)

    def at_hop(self, hop: int) -> Ticket:
        return replace(self, hop=hop)

    def to_header(self) -> dict[str, Any]:
        more = {"stop": self.stop, "admitted": self.admitted, "ran": self.ran, "said": dict(self.said)}
        return {name: value for name, value in more.items() if value != _USUAL[name]} | {
            "v": VERSION,
            "task": self.task,
            "id": self.task_id,
            "digest": self.digest,
            "lock": self.lock.name,
            "limit": self.lock.limit,
            "series": self.series,
            "hop": self.hop,
            "queue": self.queue,
        }


#: what a header need not say
_USUAL: dict[str, Any] = {"stop": 0, "admitted": True, "ran": False, "said": {}}
#: the header of a call that was published with ``lock=None``: its run asks nothing
EXEMPT: dict[str, Any] = {"v": VERSION, "lock": None}


def new_series() -> int:
    return secrets.randbits(SERIES_BITS)


def assumed_series(task_id: str) -> int:
    """The series of a message without a ticket: every delivery of it computes the same one."""
    hashed = hashlib.blake2b(str(task_id).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(hashed, "big") >> (64 - SERIES_BITS)


def new_run_id() -> str:
    return secrets.token_urlsafe(6)


def read(header: Any, *, task: str, task_id: str) -> Ticket | None:
    """The ticket in a header; ``None``, with a warning, where it is damaged, forged, or of a version unknown here."""
    if header is None:
        return None
    try:
        return _read(header, task, task_id)
    except (ValueError, TypeError, KeyError) as exc:
        logger.warning("task %s[%s]: its ticket is not used, the message counts as one without: %s", task, task_id, exc)
        return None


def is_exempt(header: Any) -> bool:
    return isinstance(header, Mapping) and header.get("v") == VERSION and header.get("lock", "") is None


def _read(header: Any, task: str, task_id: str) -> Ticket:
    if not isinstance(header, Mapping):
        raise ValueError("it is no mapping")
    if header.get("v") != VERSION:
        raise ValueError(f"version {header.get('v')!r:.80}, known is {VERSION}")
    if (header["task"], header["id"]) != (task, task_id):
        raise ValueError(f"it was made for {header['task']!s:.80}[{header['id']!s:.80}]")
    lock = LOCK_TYPES.get(header["lock"])
    if lock is None:
        raise ValueError(f"unknown lock {header['lock']!s:.80}")
    if not isinstance(header["digest"], str) or not _DIGEST.fullmatch(header["digest"]):
        raise ValueError("damaged digest")
    return Ticket(
        task=task,
        task_id=task_id,
        digest=header["digest"],
        lock=replace(lock, limit=_whole(header, "limit", 1, 1 << 31)),
        series=_whole(header, "series", 0, 1 << SERIES_BITS),
        hop=_whole(header, "hop", 0, 1 << 52),
        queue=header["queue"] if isinstance(header["queue"], str) else None,
        admitted=header.get("admitted", True) is True,
        ran=header.get("ran", False) is True,
        stop=_whole(header, "stop", 0, 1 << 53) if "stop" in header else 0,
        said=_mapping(header, "said"),
    )


def tries(header: Any) -> int:
    """How often a message was rescheduled, by its header; a damaged one counts as none."""
    return header if isinstance(header, int) and 0 <= header < 1 << 31 else 0


def _mapping(header: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = header.get(name, {})
    if not isinstance(value, Mapping):
        raise ValueError(f"damaged {name}")
    return dict(value)


def _whole(header: Mapping[str, Any], name: str, low: int, high: int) -> int:
    value = header[name]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < high:
        raise ValueError(f"damaged {name}")
    return value
