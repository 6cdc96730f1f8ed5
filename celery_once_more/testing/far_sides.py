"""Far sides: what a task reaches over HTTP, and what does not die with it; they remember what was asked, and what they did.

There are three kinds, by what they offer to a caller who does not know whether his request was carried out:

- ``honours_key``: it keeps the answer to the first request with an ``Idempotency-Key``, and gives it to every later one;
- ``can_be_asked``: ``GET /charge?reference=…`` tells whether a charge with this reference was made; a POST makes one more;
- ``neither``: every POST has its effect once more.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from celery_once_more.testing.far_client import KEY_HEADER, FarClient
from celery_once_more.testing.far_http import Reply, Request, Server, changing

Kind = Literal["honours_key", "can_be_asked", "neither"]
#: what becomes of one POST: the connection is closed, or stays open, after the effect; 503 instead of it; 502 after it
Fault = Literal["answer_lost", "answer_held", "error_before", "error_after"]
#: seconds for which requests that are on their way are waited for; longer only where one never comes to its end
SETTLE_S = 5.0


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """What is kept of the first request with a key."""

    request: Request
    reply: Reply


class FarSide:
    """A server in the test's process, from now on until :meth:`close`. Child processes only talk to it: :meth:`post`,
    :meth:`ask`, or any HTTP library with :attr:`url`; pickled, it becomes a :class:`FarClient`.
    """

    def __init__(self, kind: Kind) -> None:
        if kind not in get_args(Kind):
            raise ValueError(f"a far side is one of {', '.join(map(repr, get_args(Kind)))}, not {kind!r}")
        self.kind = kind
        self._changed = threading.Condition(changing)
        self._owner = os.getpid()
        self._closed = False
        self._held = self._releases = 0
        self._in_process: set[str] = set()
        self._forget()
        self._server = Server(self._answer)
        #: ``http://127.0.0.1:…``
        self.url = f"http://127.0.0.1:{self._server.port}"
        self.client = FarClient(self.url)
        self._server.begin()

    def post(self, effect: str, /, key: str | None = None, reference: str | None = None, **payload: Any) -> dict[str, Any]:
        """As :meth:`FarClient.post`."""
        return self.client.post(effect, key=key, reference=reference, **payload)

    def ask(self, effect: str, reference: str) -> dict[str, Any] | None:
        """As :meth:`FarClient.ask`."""
        return self.client.ask(effect, reference)

    # --- what a test looks at

    @property
    def requests(self) -> list[Request]:
        """All of them, as they were received, in order."""
        self._settle()
        with changing:
            return list(self._requests)

    @property
    def effects(self) -> list[dict[str, Any]]:
        """What was really done, in order: ``{"effect": "charge", "payload": {"amount": 5}}``. It bears no key and no time, so
        that two runs can be compared.
        """
        self._settle()
        with changing:
            return copy.deepcopy(self._effects)

    # --- what a test does to it

    def disturb(self, fault: Fault, *, times: int = 1) -> None:
        """Let one fault befall each of the next POSTs.

        - ``"answer_lost"``: its effect is done, and the connection is closed without an answer;
        - ``"answer_held"``: its effect is done, and the answer comes after :meth:`release`;
        - ``"error_before"``: 503, and no effect; ``"error_after"``: 502 after the effect, as from a gateway in between.
        """
        if fault not in get_args(Fault):
            raise ValueError(f"a fault is one of {', '.join(map(repr, get_args(Fault)))}, not {fault!r}")
        self._must_be_here()
        with changing:
            self._faults.extend([fault] * times)

    def wait_for_held(self, count: int = 1, *, within_s: float = 30.0) -> None:
        """Until so many answers are held."""
        self._must_be_here()
        with self._changed:
            if not self._changed.wait_for(lambda: self._held >= count, within_s):
                raise AssertionError(f"{self.url}: {self._held} answers are held after {within_s:.0f} s, not {count}")

    def release(self) -> None:
        """Send the answers that are held."""
        self._must_be_here()
        with self._changed:
            self._releases += 1
            self._held = 0
            self._in_process.clear()
            self._changed.notify_all()

    def reset(self) -> None:
        """Forget all that was asked and done, every key and every fault; what is held is sent."""
        self.release()
        self._settle()
        with changing:
            self._forget()

    def close(self) -> None:
        """Answer nobody any more. What was asked and done can still be looked at."""
        if os.getpid() != self._owner or self._closed:
            return
        self._closed = True
        self.release()
        self._server.end()

    def __enter__(self) -> FarSide:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<FarSide {self.kind} {self.url}>"

    def __reduce__(self) -> tuple[Callable[[str], FarClient], tuple[str]]:
        return FarClient, (self.url,)

    # --- how it answers

    def _forget(self) -> None:
        self._requests: list[Request] = []
        self._effects: list[dict[str, Any]] = []
        self._replies: list[Reply] = []  # of each effect
        self._kept: dict[str, _Kept] = {}
        self._faults: deque[Fault] = deque()

    def _answer(self, request: Request) -> Reply | None:
        with self._changed:
            self._requests.append(request)
            if request.method == "GET":
                return self._tell(request)
            fault = self._faults.popleft() if self._faults else None
            if fault == "error_before":
                return _refusal(503, "not now")
            reply = self._by_key(request) if self.kind == "honours_key" and request.key is not None else self._do(request)
            if fault == "answer_held":
                self._hold(request)
            if fault == "error_after":
                return _refusal(502, "the answer was lost on its way")
            return None if fault == "answer_lost" else reply

    def _by_key(self, request: Request) -> Reply:
        assert request.key is not None
        kept = self._kept.get(request.key)
        if kept is None:
            reply = self._do(request)
            self._kept[request.key] = _Kept(request=request, reply=reply)
            return reply
        if kept.request != request:
            return _refusal(422, f"this {KEY_HEADER} came with another request before")
        if request.key in self._in_process:
            return _refusal(409, f"the first request with this {KEY_HEADER} is still being processed")
        return kept.reply

    def _do(self, request: Request) -> Reply:
        number = 1 + sum(effect["effect"] == request.effect for effect in self._effects)
        self._effects.append({"effect": request.effect, "payload": request.payload})
        reply = Reply(status=201, body={"id": f"{request.effect}-{number}", "effect": request.effect})
        self._replies.append(reply)
        return reply

    def _tell(self, request: Request) -> Reply:
        if self.kind != "can_be_asked":
            return _refusal(405, "this far side cannot be asked")
        for effect, reply in zip(self._effects, self._replies, strict=True):
            if effect["effect"] == request.effect and _reference(effect["payload"]) == _reference(request.payload):
                return Reply(status=200, body=reply.body)
        return _refusal(404, f"no {request.effect} with this reference")

    def _hold(self, request: Request) -> None:
        releases = self._releases
        self._held += 1
        if request.key is not None:
            self._in_process.add(request.key)
        self._changed.notify_all()
        self._changed.wait_for(lambda: self._releases > releases)

    # --- where, and when

    def _must_be_here(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError(f"{self!r} lives in the process of the test; a child can only post to it, and ask it")

    def _settle(self) -> None:
        """Until no request is on its way, but those whose answers are held: its sender may have died just now."""
        self._must_be_here()
        deadline = time.monotonic() + SETTLE_S
        while not self._closed and self._server.at_work() > self._held and time.monotonic() < deadline:
            time.sleep(0.001)


def _refusal(status: int, why: str) -> Reply:
    return Reply(status=status, body={"error": why})


def _reference(payload: Any) -> str | None:
    reference = payload.get("reference") if isinstance(payload, dict) else None
    return None if reference is None else str(reference)
