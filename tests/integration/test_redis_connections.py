"""One process opens so many connections to its lock store and no more, however many threads use it at once."""

import os
import signal
import threading
import time

import pytest
from contract.stores import THROUGH, renew, start, store_at, through, ticket
from support.forked import Child
from support.redis_server import RedisServer
from support.waiting import eventually

from celery_once_more.exceptions import StoreUnavailable
from celery_once_more.locks.connect import connect
from celery_once_more.locks.wire import Wire

THREADS, CONNECTIONS = 60, 3


@pytest.fixture
def server():
    server = RedisServer().start()
    yield server
    server.stop()


def at_once(act):
    """``act(n)`` in many threads; what each of them got."""
    got = []

    def one(n):
        try:
            got.append(act(n))
        except StoreUnavailable as exc:
            got.append(exc)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    return threads, got


def in_use(server, store):
    return len([c for c in server.client(0).client_list() if c["name"] == "locks"])


@pytest.mark.parametrize("connections", [1, 2, CONNECTIONS])
def test_threads_wait_for_a_connection_and_each_gets_its_answers(server, connections):
    store = store_at(server.url(0), max_connections=connections, client_name="locks")
    threads, got = at_once(lambda n: through(store, ticket(n)))
    most = 0
    while any(thread.is_alive() for thread in threads):
        most = max(most, in_use(server, store))
    assert got == [THROUGH] * THREADS
    assert 1 <= max(most, in_use(server, store)) <= connections


def test_where_the_server_answers_nobody_all_of_them_give_up(server):
    store = store_at(server.url(0), patient=False, max_connections=CONNECTIONS, socket_timeout=0.2)
    assert through(store, ticket()) == THROUGH
    server.signal(signal.SIGSTOP)
    threads, got = at_once(lambda n: through(store, ticket(n)))
    for thread in threads:
        thread.join(60)
    assert [type(each) for each in got] == [StoreUnavailable] * THREADS
    server.signal(signal.SIGCONT)
    assert through(store, ticket("again")) == THROUGH


def test_a_process_that_stands_still_meanwhile_gives_nobody_up(server):
    """The answer came while it was stopped; whoever wakes first, it is not for lack of an answer."""

    def asks_beside_another(tell):
        wire = Wire(connect(server.url(0), {"max_connections": 1, "socket_timeout": 0.5}))
        wire.send(["PING"])
        blocks = threading.Thread(target=wire.send, args=(["BLPOP", "nothing", 0.3],))
        blocks.start()
        eventually(lambda: not wire._singly._idle)
        tell("stop me")
        return wire.send(["PING"])

    for _ in range(5):
        child = Child(asks_beside_another)
        assert child.hear() == "stop me"
        os.kill(child.process.pid, signal.SIGSTOP)
        time.sleep(1)
        child.thaw()
        assert child.end() == b"PONG"


def test_leases_are_renewed_beside_threads_that_have_taken_every_other_connection(server):
    store = store_at(server.url(0), max_connections=CONNECTIONS)
    start(store, ticket())
    waiting = [threading.Thread(target=store.wire.send, args=(("BLPOP", "gate", 60),)) for _ in range(CONNECTIONS - 1)]
    for thread in waiting:
        thread.start()
    eventually(lambda: server.client(0).info("clients")["blocked_clients"] == len(waiting))
    assert renew(store, ticket()) == "renewed"
    server.client(0).lpush("gate", *range(len(waiting)))
    for thread in waiting:
        thread.join(60)
    assert store.finish(ticket(), run="run") == "freed"
