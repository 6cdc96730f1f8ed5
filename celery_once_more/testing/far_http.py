"""The HTTP of a far side: a server in threads of the test's process, whose sockets no child of that process may use.

A fork copies every socket. A child that kept them would hold the port open when the test has closed it, and a connection that
was closed without an answer would not look so to whoever waits there. So a child closes its copies as soon as it exists, and
this process ends a connection by ``shutdown``, which counts for all copies.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from weakref import WeakSet

from celery_once_more.testing.far_client import KEY_HEADER

#: held during a fork, and whenever a far side changes: a child begins with nothing half-done, and with no lock that another
#: thread holds
changing = threading.RLock()
_servers: WeakSet[Server] = WeakSet()


@dataclass(frozen=True, kw_only=True)
class Request:
    """As it was received."""

    method: str
    #: the path without its slash, for example ``charge``
    effect: str
    key: str | None
    #: its JSON or form; a text where it is neither; of a question the query
    payload: Any


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int
    body: dict[str, Any]


#: ``None``: the connection is closed without an answer
Answering = Callable[[Request], "Reply | None"]


class Server(ThreadingHTTPServer):
    """Listens on a free loopback port from the start; :meth:`begin` serves."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, answering: Answering) -> None:
        self.answering = answering
        self.open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port: int = self.server_address[1]
        with changing:
            _servers.add(self)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's asks the DNS for our name

    def begin(self) -> None:
        threading.Thread(target=self.serve_forever, args=(0.02,), name="far-side", daemon=True).start()

    def get_request(self) -> tuple[socket.socket, Any]:
        with changing:  # a fork finds every connection among those that are open
            connection, address = super().get_request()
            self.open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        with changing:
            self.open.discard(request)
            super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # that one is: whoever asked is dead, which is no news here
            super().handle_error(request, client_address)

    def at_work(self) -> int:
        """How many connections wait or are open: requests that may still be on their way, from somebody who is dead by now."""
        with changing, selectors.DefaultSelector() as waiting:
            waiting.register(self.socket, selectors.EVENT_READ)
            return len(self.open) + len(waiting.select(0))

    def end(self) -> None:
        self.shutdown()
        with changing:
            self.server_close()
            for connection in self.open.copy():
                self.shutdown_request(connection)

    def leave_to_parent(self) -> None:
        """In a child: close the copies of its sockets, and nothing else of them."""
        self.socket.close()
        for connection in self.open:
            os.close(connection.detach())  # its close would wait for the file objects of a thread that is not in this process
        self.open.clear()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    #: a connection carries one request, as with HTTP/1.0: none stays open for a second
    timeout = 60

    def do_POST(self) -> None:
        body = self._body()
        if body is not None:
            self._answer(_read(body, self.headers.get_content_type()))

    def do_GET(self) -> None:
        self._answer(dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True)))

    def _body(self) -> bytes | None:
        """``None``: half a request, from somebody who died over it, is none."""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            self._send(Reply(status=411, body={"error": "this far side wants a Content-Length"}))
            return None
        body = self.rfile.read(int(length))
        return body if len(body) == int(length) else None

    def _answer(self, payload: Any) -> None:
        effect = unquote(urlsplit(self.path).path).strip("/")
        request = Request(method=self.command, effect=effect, key=self.headers.get(KEY_HEADER), payload=payload)
        reply = self.server.answering(request)
        if reply is not None:
            self._send(reply)

    def _send(self, reply: Reply) -> None:
        body = json.dumps(reply.body).encode()
        self.send_response(reply.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Nothing on stderr, which is the test's."""


def _read(body: bytes, kind: str) -> Any:
    if kind == "application/x-www-form-urlencoded":
        return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
    try:
        return json.loads(body or b"{}")
    except ValueError:
        return body.decode(errors="replace")


def _after_in_child() -> None:
    for server in _servers:
        server.leave_to_parent()
    changing.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=changing.acquire, after_in_parent=changing.release, after_in_child=_after_in_child)
