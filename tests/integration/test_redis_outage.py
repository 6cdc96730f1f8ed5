"""A Redis that does not answer, or refuses to: ``StoreUnavailable``, with the client's own error as its cause, and soon."""

import signal
import socket
import threading

import pytest
import redis
from contract.stores import BUCKETS, THROUGH, WAIT_MS, acquire, acts, lease, renew, start, store_at, through, ticket
from redis.exceptions import NoPermissionError
from support.redis_server import RedisServer, free_port
from support.waiting import eventually

from celery_once_more import StoreUnavailable

#: seconds; far more than two attempts with the default timeouts take
SOON = 30


@pytest.fixture
def server():
    """One of its own, to be broken."""
    server = RedisServer().start()
    yield server
    server.stop()


@pytest.fixture
def served(request):
    """A server with options of its own."""
    servers = []

    def start_one(*options):
        servers.append(RedisServer(*options).start())
        return servers[-1]

    yield start_one
    for one in servers:
        one.stop()


def fails(act):
    """The error that an act ends with, soon."""
    caught = []

    def call():
        try:
            caught.append(act())
        except BaseException as exc:
            caught.append(exc)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(SOON)
    assert caught, f"no answer within {SOON} s"
    assert isinstance(caught[0], StoreUnavailable), caught[0]
    assert caught[0].__cause__ is not None
    return caught[0].__cause__


def everything(store, one):
    """Every verb of the store, the pipelined ones too."""
    return {
        **acts(store, one),
        "renew": lambda: store.renew([lease(one)]),
        "reap": lambda: store.reap(BUCKETS, limit=10),
    }


VERBS = list(everything(None, ticket()))


@pytest.mark.parametrize("verb", VERBS)
def test_a_server_that_is_gone(verb, server):
    store = store_at(server.url(0))
    through(store, ticket())
    server.kill()
    assert isinstance(fails(everything(store, ticket())[verb]), redis.ConnectionError)


def test_nobody_listens_on_the_port():
    assert isinstance(fails(acts(store_at(f"redis://127.0.0.1:{free_port()}/0"), ticket())["acquire"]), redis.ConnectionError)


def test_a_server_that_stands_still_is_given_up_and_is_used_again_when_it_goes_on(server):
    store = store_at(server.url(0), socket_timeout=0.2)
    acquire(store, ticket(1))
    server.signal(signal.SIGSTOP)
    try:
        for verb, act in everything(store, ticket()).items():
            assert isinstance(fails(act), redis.TimeoutError), verb
    finally:
        server.signal(signal.SIGCONT)
    assert start(store, ticket(1)) == "run"


def test_a_server_that_stands_still_is_given_up_with_the_default_timeouts_too(server):
    store = store_at(server.url(0), patient=False)
    acquire(store, ticket(1))
    server.signal(signal.SIGSTOP)
    try:
        assert isinstance(fails(acts(store, ticket())["acquire"]), redis.TimeoutError)
    finally:
        server.signal(signal.SIGCONT)


def test_a_host_that_takes_the_connection_and_says_nothing():
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"redis://127.0.0.1:{deaf.getsockname()[1]}/0"
        assert isinstance(fails(acts(store_at(url, socket_timeout=0.2), ticket())["acquire"]), redis.TimeoutError)


def test_a_read_only_replica(server, served):
    server.client(0).config_set("repl-diskless-sync-delay", 0)
    master, held = store_at(server.url(0)), ticket("held")
    acquire(master, held)
    start(master, held)
    replica = served("--replicaof", "127.0.0.1", str(server.port))
    store = store_at(replica.url(0))
    eventually(lambda: replica.client(0).exists(master.keys.record(held.digest)), within=60, what="the replica knows of the lock")
    for verb, of in [("acquire", ticket()), ("start", ticket()), ("requeue", held), ("finish", held), ("renew", held)]:
        cause = fails(everything(store, of)[verb])
        assert isinstance(cause, redis.ResponseError), verb
        assert "read only replica" in str(cause), verb


def test_a_replica_that_became_the_master_is_used_from_then_on(server, served):
    replica = served("--replicaof", "127.0.0.1", str(server.port))
    store = store_at(replica.url(0))
    fails(acts(store, ticket())["acquire"])
    replica.client(0).replicaof("NO", "ONE")
    assert through(store, ticket()) == THROUGH


def test_a_server_without_memory_to_spare(server):
    store, held = store_at(server.url(0)), ticket("held")
    acquire(store, held)
    start(store, held)
    server.client(0).config_set("maxmemory", 1)
    for verb, of in [("acquire", ticket()), ("start", ticket()), ("requeue", held), ("renew", held)]:
        cause = fails(everything(store, of)[verb])
        assert isinstance(cause, redis.ResponseError), verb
        assert "maxmemory" in str(cause), verb


def test_a_server_without_memory_to_spare_still_lets_locks_go(server):
    store, one, other = store_at(server.url(0)), ticket(1), ticket(2)
    acquire(store, one)
    start(store, one)
    acquire(store, other)
    server.client(0).config_set("maxmemory", 1)
    assert (store.finish(one, run="run"), store.release(other)) == ("freed", True)
    assert start(store, one, "again") == "done"


@pytest.mark.parametrize("options", [{}, {"password": "wrong"}, {"username": "nobody", "password": "wrong"}])
def test_a_password_that_is_missing_or_wrong(options, served):
    server = served("--requirepass", "right")
    assert isinstance(fails(acts(store_at(server.url(0), **options), ticket())["acquire"]), redis.AuthenticationError)


@pytest.mark.parametrize("verb", VERBS)
def test_a_user_who_may_not_run_scripts(verb, server):
    server.client(0).execute_command("ACL", "SETUSER", "weak", "on", ">pw", "~*", "+@all", "-@scripting")
    store = store_at(server.url(0), username="weak", password="pw")
    assert isinstance(fails(everything(store, ticket())[verb]), NoPermissionError)


def test_a_database_that_does_not_exist(server):
    assert isinstance(fails(acts(store_at(server.url(4711)), ticket())["acquire"]), redis.ResponseError)


def test_one_broken_record_does_not_stop_the_renewal_of_others(server):
    store, one, broken = store_at(server.url(0)), ticket(1), ticket(2)
    acquire(store, one)
    start(store, one)
    server.client(0).set(store.keys.record(broken.digest), "hello")
    verdicts = [r.verdict for r in store.renew([lease(broken), lease(one)])]
    assert verdicts == ["unknown", "renewed"]


class Forgetful:
    """A proxy that loses the reply of the n-th script, once, together with the connection."""

    def __init__(self, port):
        self.port = port
        self.lose = 0
        self.lost = 0
        #: connections on which a script was asked for
        self.scripts = set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}/0"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port))
            for pump in (self._asked, self._answered):
                threading.Thread(target=self._until_closed, args=(pump, client, server), daemon=True).start()

    def _until_closed(self, pump, client, server):
        try:
            while pump(client, server):
                pass
        except OSError:
            pass  # the other direction has closed them
        for one in (client, server):
            one.close()

    def _asked(self, client, server):
        asked = client.recv(1 << 16)
        if b"EVAL" in asked:
            self.scripts.add(server)
        server.sendall(asked)
        return asked

    def _answered(self, client, server):
        answer = server.recv(1 << 16)
        if self.lose and server in self.scripts:
            self.lose -= 1
            self.lost += 1
            client.shutdown(socket.SHUT_RDWR)
            return b""
        client.sendall(answer)
        return answer

    def close(self):
        self.listener.close()


@pytest.fixture
def proxy(clean_redis):
    proxy = Forgetful(clean_redis.port)
    yield proxy
    proxy.close()


def test_an_act_whose_reply_is_lost_is_sent_again_and_answered_as_if_it_had_not_been(proxy, clean_redis):
    direct, store, one = store_at(clean_redis.url(0)), store_at(proxy.url), ticket()
    through(direct, ticket("other"))
    answers = []
    for act in (
        lambda: acquire(store, one),
        lambda: start(store, one),
        lambda: store.requeue(one, run="run", hop=1, wait_ms=WAIT_MS),
        lambda: store.confirm(one, hop=1, wait_ms=WAIT_MS),
        lambda: start(store, one.at_hop(1), "next"),
        lambda: renew(store, one.at_hop(1), "next"),
        lambda: store.look(one.at_hop(1), run="next")[0],
    ):
        proxy.lose = 1
        answers.append(act())
    assert answers == ["admitted", "run", True, None, "run", "renewed", "mine"]
    assert proxy.lost == 7
    proxy.lose = 1
    assert store.finish(one.at_hop(1), run="next") == "freed"
    assert start(direct, one.at_hop(1), "later") == "done"
    assert store.finish(one.at_hop(1), run="next") == "gone"  # said once more by somebody else
    proxy.lose = 1
    assert store.finish(ticket("never held"), run="next") == "freed"  # nobody can know better


def test_a_server_whose_replies_are_always_lost_is_an_outage(proxy):
    proxy.lose = 1000
    assert isinstance(fails(acts(store_at(proxy.url), ticket())["acquire"]), redis.ConnectionError)
