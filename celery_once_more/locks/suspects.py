"""Suspects on Redis: waiting holders whose message was not found, and what the workers say of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from celery_once_more.locks import Asked, Waiting
from celery_once_more.locks.scripts import Arguments

#: suspects at most; what is found beyond them is found again
LIMIT = 1000


class RedisSuspects:
    """Implements :class:`~celery_once_more.locks.Suspects`."""

    def __init__(self, run: Callable[[str, Sequence[str], Arguments], Any], keys: Sequence[str]) -> None:
        self._run, self._keys = run, keys

    def noted(self) -> dict[Waiting, str]:
        answer = self._run("noted", self._keys, ())
        return {_waiting(member): str(int(when)) for member, when in zip(answer[::2], answer[1::2], strict=True)}

    def note(self, missing: Mapping[Waiting, str], found: Iterable[Waiting], *, lease_ms: int) -> list[Waiting]:
        there = [_member(waiting) for waiting in found]
        absent = [text for waiting, when in missing.items() for text in (_member(waiting), when)]
        gone = self._run("suspect", self._keys, (lease_ms, LIMIT, len(there), *there, *absent))
        return [_waiting(member) for member in gone]

    def ask(self, worker: str, *, lease_ms: int) -> Asked:
        suspects, at = self._run("ask", self._keys, (worker, lease_ms))
        return Asked([_waiting(member) for member in suspects], at)

    def vouch(self, worker: str, asked: Asked, known: Iterable[Waiting], *, lease_ms: int) -> None:
        self._run("vouch", self._keys, (worker, lease_ms, asked.at, *map(_member, known)))


def _member(waiting: Waiting) -> str:
    return json.dumps(asdict(waiting))


def _waiting(member: bytes | str) -> Waiting:
    return Waiting(**json.loads(member))
