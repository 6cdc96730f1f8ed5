"""Talks to a far side, for tasks without an HTTP library: two calls, by the standard library alone.

A client is an address and no more, so it can be pickled, and used in any process; a crash-point test sees each send.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 (else the first connection does so, which may be in a thread, amid a fork)
import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from celery_once_more import crash

#: the header of a deduplication key, as the IETF's draft and most payment providers spell it
KEY_HEADER = "Idempotency-Key"


class FarSideError(Exception):
    """The far side refused. ``args``: HTTP status, its answer."""

    @property
    def status(self) -> int:
        return int(self.args[0])

    def __str__(self) -> str:
        return f"the far side answered {self.args[0]}: {self.args[1]}"


@dataclass(frozen=True)
class FarClient:
    url: str
    #: seconds to wait for an answer
    timeout_s: float = 30.0

    def post(self, effect: str, /, key: str | None = None, reference: str | None = None, **payload: Any) -> dict[str, Any]:
        """Have it done, and return its answer.

        Args:
            effect: what, for example ``"charge"``: the last part of the URL.
            key: the deduplication key.
            reference: travels in the payload; what it can be asked by.

        Raises:
            FarSideError: an answer that is no success.
            http.client.RemoteDisconnected: a ``ConnectionError``; no answer came. Nobody can know whether it was done.
        """
        path = _path(effect)
        if reference is not None:
            payload["reference"] = reference
        headers = {"Content-Type": "application/json", **({KEY_HEADER: key} if key is not None else {})}
        crash.reach("before", "http", f"POST {path}", key=key or "")
        status, answer = self._send("POST", path, json.dumps(payload).encode(), headers)
        crash.reach("after", "http", f"POST {path}", key=key or "")
        if status >= 300:
            raise FarSideError(status, answer)
        return answer

    def ask(self, effect: str, reference: str) -> dict[str, Any] | None:
        """What came of the effect with this reference: the answer that its POST got; ``None``: it was not done.

        Raises:
            FarSideError: it cannot be asked.
        """
        status, answer = self._send("GET", f"{_path(effect)}?{urlencode({'reference': reference})}", None, {})
        if status == 404:
            return None
        if status >= 300:
            raise FarSideError(status, answer)
        return answer

    def _send(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=self.timeout_s)
        try:
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


def _path(effect: str) -> str:
    return f"/{quote(effect.strip('/'))}"
