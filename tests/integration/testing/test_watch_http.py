"""The points of httpx and requests, at a server of the test's own."""

import asyncio
import threading
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
import requests
from support.points import Died, around, seeing
from support.redis_server import free_port

from celery_once_more.testing.instruments import http as instrument


class Handler(BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.asked.append(f"{self.command} {self.path.partition('?')[0]}")
        status = {"/broken": 500, "/away": 303}.get(self.path, 200)
        self.send_response(status)
        if status == 303:
            self.send_header("Location", "/there")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    do_GET = do_POST = answer  # noqa: N815

    def log_message(self, *_):
        """Quiet."""


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked = []
    server.host = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def with_httpx(method, url, **options):
    with httpx.Client() as client:
        return client.request(method, url, **options)


def with_session(method, url, **options):
    with requests.Session() as session:
        return session.request(method, url, **options)


def with_async_httpx(method, url, **options):
    async def send():
        async with httpx.AsyncClient() as client:
            return await client.request(method, url, **options)

    return asyncio.run(send())


@pytest.fixture(params=[with_httpx, httpx.request, with_async_httpx, with_session, requests.request])
def send(request):
    return request.param


def watching(dies_at=None):
    return seeing(instrument.watch(), dies_at)


def test_a_request_and_its_answer(server, send):
    with watching() as seen:
        assert send("POST", f"http://{server.host}/charge", json={"amount": 5}).status_code == 200
    assert seen == around("http", f"POST http://{server.host}/charge")
    assert server.asked == ["POST /charge"]


def test_neither_user_nor_query_nor_fragment_is_told(server, send):
    with watching() as seen:
        send("get", f"http://me:secret@{server.host}/charge?key=secret#secret")
        send("GET", f"http://{server.host}")
    assert seen == around("http", f"GET http://{server.host}/charge") + around("http", f"GET http://{server.host}/")


def test_an_error_is_an_answer(server, send):
    with watching() as seen:
        assert send("POST", f"http://{server.host}/broken").status_code == 500
    assert seen == around("http", f"POST http://{server.host}/broken")


def test_without_an_answer_there_is_no_point_after(send):
    nowhere = f"http://127.0.0.1:{free_port()}/charge"
    with watching() as seen, pytest.raises((httpx.ConnectError, requests.ConnectionError)):
        send("POST", nowhere)
    assert seen == [("before", "http", f"POST {nowhere}")]


def test_httpx_follows_a_redirect_inside_the_one_request(server):
    with watching() as seen:
        httpx.post(f"http://{server.host}/away", follow_redirects=True)
    assert seen == around("http", f"POST http://{server.host}/away")
    assert server.asked == ["POST /away", "GET /there"]


def test_requests_follows_a_redirect_by_a_request_of_its_own(server):
    with watching() as seen:
        requests.post(f"http://{server.host}/away")
    away, there = f"POST http://{server.host}/away", f"GET http://{server.host}/there"
    assert seen == [("before", "http", away), *around("http", there), ("after", "http", away)]


def test_a_stream_has_its_point_when_the_head_of_the_answer_is_there(server):
    with watching() as seen, httpx.stream("GET", f"http://{server.host}/file") as answer:
        assert seen == around("http", f"GET http://{server.host}/file")
        assert answer.read() == b"ok"


def test_what_stands_in_for_the_network_is_inside(server):
    class Adapter(requests.adapters.HTTPAdapter):
        def send(self, request, **_):
            answer = requests.Response()
            answer.status_code, answer.url, answer.request = 200, request.url, request
            return answer

    with watching() as seen:
        with httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200))) as client:
            client.post("http://shop.test/charge")
        with requests.Session() as session:
            session.mount("http://", Adapter())
            session.post("http://shop.test/charge")
    assert seen == around("http", "POST http://shop.test/charge") * 2


@pytest.mark.parametrize(("dies_at", "asked"), [(1, []), (2, ["POST /charge"])])
def test_a_death_goes_through(server, send, dies_at, asked):
    with watching(dies_at) as seen, pytest.raises(Died):
        send("POST", f"http://{server.host}/charge")
    assert len(seen) == dies_at
    assert server.asked == asked


def test_afterwards_nothing_is_watched(server, send):
    before = httpx.Client.send, httpx.AsyncClient.send, requests.Session.send
    with seeing(nullcontext()) as seen:
        with instrument.watch():
            pass
        send("GET", f"http://{server.host}/")
    assert seen == []
    assert (httpx.Client.send, httpx.AsyncClient.send, requests.Session.send) == before


def test_the_key_of_a_request_is_told_beside_its_name(server, send):
    with watching() as seen:
        send("POST", f"http://{server.host}/charge", headers={"idempotency-key": "order-7"})
        send("POST", f"http://{server.host}/charge")
    assert seen.keys == ["order-7", "order-7", "", ""]
