"""Real workers: pytest-celery's cluster and node fixtures, over processes and a Redis of the tests' own."""

import json
import os
import sys
from pathlib import Path

import pytest
from pytest_celery import CeleryWorkerCluster
from support.proxy import Proxy
from support.worker_process import WorkerNode, WorkerProcess

HERE = Path(__file__).parent
TESTS = HERE.parent
#: milliseconds that the lock store is away from everybody, each way: the tests must not notice
LATENCY = "ONCE_MORE_TEST_LATENCY_MS"


@pytest.fixture(scope="session")
def shop_env(redis_server):
    """What makes ``shop`` importable, and tells it where its Redis is; here and in every worker."""
    os.environ["SHOP_REDIS"] = f"redis://127.0.0.1:{redis_server.port}"
    if os.environ.get(LATENCY):
        proxy = Proxy(redis_server.port)
        proxy.delay(float(os.environ[LATENCY]) / 1000)
        os.environ["SHOP_LOCKS"] = f"redis://127.0.0.1:{proxy.port}"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(TESTS), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(HERE))


@pytest.fixture
def conf(request):
    """Settings over those of ``shop``: ``@pytest.mark.conf(once_more_lease=2)``; the publisher has them as well."""
    marker = request.node.get_closest_marker("conf")
    return dict(marker.kwargs) if marker else {}


@pytest.fixture
def shop(shop_env, clean_redis, conf):
    """The module ``shop``, on an empty Redis, with the test's settings."""
    import shop

    before = {name: shop.app.conf.get(name) for name in conf}
    shop.app.conf.update(conf)
    vars(shop.app).pop("_once_more_runtime", None)
    yield shop
    shop.app.conf.update(before)
    vars(shop.app).pop("_once_more_runtime", None)


@pytest.fixture
def witness(shop):
    return shop.witness


@pytest.fixture
def start_worker(shop, conf):
    """``start_worker("-c", "1")`` -> a worker that is ready; all of them are gone when the test ends."""
    nodes = []

    def start(*options, ready=True, **more):
        env = {"SHOP_CONF": json.dumps(conf), **more.pop("env", {})}
        process = WorkerProcess(*options, name=f"w{len(nodes)}", env=env, **more)
        nodes.append(WorkerNode(process, shop.app))
        if ready:
            process.ready()
        return nodes[-1]

    yield start
    for node in nodes:
        node.teardown()


@pytest.fixture
def celery_worker_cluster(request, start_worker):
    """pytest-celery's cluster; ``@pytest.mark.workers(2, "-c", "1")`` says how many, and with which options."""
    marker = request.node.get_closest_marker("workers")
    count, options = (marker.args[0], marker.args[1:]) if marker else (1, ("-c", "2"))
    nodes = [start_worker(*options, ready=False) for _ in range(count)]
    for node in nodes:
        node.ready()
    return CeleryWorkerCluster(*nodes)


@pytest.fixture
def worker(celery_worker_cluster):
    return celery_worker_cluster[0]
