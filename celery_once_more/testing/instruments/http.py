"""The requests that a process sends with httpx or requests, one before and one after each.

The outermost function that every request goes through is replaced, so that what stands in for the network in a user's tests
is inside. An answer is an answer, also one of an error; where none came there is no point after. Each redirect that requests
follows is a request of its own; httpx follows them inside the one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

from celery_once_more.testing.far_client import KEY_HEADER
from celery_once_more.testing.instruments.boundary import Replaced, boundary


@contextmanager
def watch() -> Iterator[None]:
    """Those of the two libraries that are imported."""
    with ExitStack() as stack:
        for name, watch_one in (("httpx", watch_httpx), ("requests", watch_requests)):
            if name in sys.modules:
                stack.enter_context(watch_one())
        yield


@contextmanager
def watch_httpx() -> Iterator[None]:
    import httpx

    replaced = Replaced()
    replaced.put(httpx.Client, "send", _sending(httpx.Client.send))
    replaced.put(httpx.AsyncClient, "send", _sending_async(httpx.AsyncClient.send))
    try:
        yield
    finally:
        replaced.restore()


@contextmanager
def watch_requests() -> Iterator[None]:
    import requests

    replaced = Replaced()
    replaced.put(requests.Session, "send", _sending(requests.Session.send))
    try:
        yield
    finally:
        replaced.restore()


def name_of(method: str, url: str) -> str:
    """``POST http://host/path``: neither user, nor query, nor fragment, which hold secrets and values."""
    parts = urlsplit(url)
    return f"{method.upper()} {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path or '/'}"


def key_of(request: Any) -> str:
    """By which the far side knows this request again; empty where it bears none."""
    key = request.headers.get(KEY_HEADER) or ""
    return key.decode("latin-1") if isinstance(key, bytes) else str(key)


def _sending(send: Any) -> Any:
    @functools.wraps(send)
    def watched(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        with boundary("http", name_of(request.method or "GET", str(request.url)), key=key_of(request)):
            return send(self, request, *args, **kwargs)

    return watched


def _sending_async(send: Any) -> Any:
    @functools.wraps(send)
    async def watched(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        with boundary("http", name_of(request.method, str(request.url)), key=key_of(request)):
            return await send(self, request, *args, **kwargs)

    return watched
