"""The shop floor of the matrix: a broker, a lock store and a book of its own, and one worker at a time that may be spoilt.

Publishers talk to broker and store directly; workers through proxies, so that theirs can be cut.
"""

import json
import os
import shutil
import signal
import tempfile
import threading
from pathlib import Path

from kombu import Connection
from support import rabbitmq_server as rabbit
from support.broker import Broker
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.waiting import eventually
from support.worker_process import WorkerProcess

from matrix.book import Book
from matrix.floor_tasks import build

TESTS = Path(__file__).parent.parent
#: seconds until an unacknowledged message comes again, on a Redis broker
VISIBILITY = 3
#: none of them is over while a cell lasts: what is free in time was freed, and did not lapse
LONG_LEASE, LONG_QUEUE_LEASE = 120, 24 * 3600
POOLS = {
    "prefork": ("-c", "3"),
    "threads": ("-P", "threads", "-c", "3"),
    "gevent": ("-P", "gevent", "-c", "20"),
    "eventlet": ("-P", "eventlet", "-c", "20"),
    "solo": ("-P", "solo"),
}


class Floor:
    def __init__(self, broker, pool="prefork", conf=None):
        self.broker_name, self.pool = broker, pool
        self.folder = Path(tempfile.mkdtemp(prefix="once-more-matrix-"))
        self.book = Book(self.folder / "book.sqlite").make()
        self.redis = RedisServer().start()  # results, and the broker if it is Redis
        self.locks = RedisServer("--appendonly", "yes", "--appendfsync", "always").start()
        self.rabbit = rabbit.find().start() if broker == "RabbitMQ" else None
        self.broker_proxy = Proxy(self.rabbit.port if self.rabbit else self.redis.port)
        self.locks_proxy = Proxy(self.locks.port)
        self.redis_broker = None if self.rabbit else Broker(self.redis.client(0))
        self.app = build(self.book, strangers=True, **self._conf(near=True), **(conf or {}))
        self._made, self._worker, self._workers = None, None, []
        self.cells = 0
        self._closed = threading.Event()
        if self.redis_broker and pool in ("gevent", "eventlet"):
            threading.Thread(target=self._sweep, daemon=True).start()

    def _conf(self, near):
        broker_url = self.rabbit.url if self.rabbit else self.redis.url(0)
        locks_url = self.locks.url(0)
        if not near:
            broker_url = broker_url.replace(f":{self.broker_proxy.server[1]}/", f":{self.broker_proxy.port}/")
            locks_url = locks_url.replace(f":{self.locks.port}/", f":{self.locks_proxy.port}/")
        conf = {"broker_url": broker_url, "result_backend": self.redis.url(1), "once_more_redis_url": locks_url,
                "once_more_lease": LONG_LEASE, "once_more_queue_lease": LONG_QUEUE_LEASE}  # fmt: skip
        if not self.rabbit:
            conf["broker_transport_options"] = {
                "visibility_timeout": VISIBILITY, "unacked_restore_interval": 1, "unacked_restore_throttle": 1,
            }  # fmt: skip
        return conf

    # -- workers --

    def worker(self, *options, env=None, **conf):
        """The living worker with these options; another one goes, and one is started where there is none."""
        if self._worker is None or self._worker.status != "running" or self._made != (options, env, conf):
            self.dismiss()
            self._made, self._worker = (options, env, conf), self.start_worker(*options, env=env, **conf)
        return self._worker

    def start_worker(self, *options, env=None, **conf):
        said = {"book": self.book.path, "conf": {**self._conf(near=False), **conf}}
        env = {**(env or {}), "FLOOR": json.dumps(said), "PYTHONPATH": _path(env or {})}
        if self.redis_broker:
            self.redis_broker.forget_sweep()
        process = WorkerProcess(*POOLS[self.pool], "-Q", "celery", *options, app="matrix.floor_app", env=env,
                                name=f"m{len(self._workers)}")  # fmt: skip
        self._workers.append(process)
        process.ready()
        return process

    def replace_worker(self):
        """The same again, after the one before has ended or is to end."""
        options, env, conf = self._made
        self._worker.kill_group()
        self._worker = self.start_worker(*options, env=env, **conf)
        return self._worker

    def add_worker(self):
        """One more with the same options, which takes the place of the one before, though that one stays."""
        options, env, conf = self._made
        self._worker = self.start_worker(*options, env=env, **conf)
        return self._worker

    def dismiss(self):
        """End every worker."""
        for process in self._workers:
            if process.status == "running":
                process.kill_group()
        self._worker = None

    def hostname(self, worker=None):
        return f"{(worker or self._worker).name}@h"

    def tell(self, command, *args, **kwargs):
        """A remote-control command that the worker has obeyed when this returns; one that has just started may miss the first."""
        order = getattr(self.app.control, command)
        eventually(
            lambda: order(*args, destination=[self.hostname()], reply=True, timeout=3, **kwargs), what=f"an answer to {command}"
        )

    def reset(self, *queues):
        """After a cell that went wrong: nothing of it is left."""
        self.book.open_gate("*")
        self.dismiss()
        for queue in queues:
            self.purge(queue)
        for server in (self.locks, self.redis):
            server.signal(signal.SIGCONT)
            server.client(0).flushall()
        self.book.make()

    # -- the broker --

    def purge(self, queue):
        with Connection(self.app.conf.broker_url) as connection:
            return connection.default_channel.queue_purge(queue)

    def waiting(self, queue):
        """How many messages stand in a queue."""
        if self.redis_broker:
            return len(self.redis_broker.waiting(queue))
        with Connection(self.app.conf.broker_url) as connection:
            return connection.default_channel.queue_declare(queue, passive=True).message_count

    def _sweep(self):
        """What every worker with an event loop does on a Redis broker: hand out what nobody has acknowledged in time. One of
        greenlets does so only while messages come, and there is no other worker here.
        """
        with Connection(self.app.conf.broker_url, transport_options=self.app.conf.broker_transport_options) as connection:
            while not self._closed.wait(1):
                connection.default_channel.qos.restore_visible(interval=1)

    def work(self, *queues):
        """What is in these queues, or in the worker's hands; nothing, twice in a row, and nothing will come any more."""
        return self._work(queues) or self._work(queues)

    def _work(self, queues):
        found = {queue: many for queue in queues if (many := self.waiting(queue))}
        if self.redis_broker and (held := self.redis_broker.unacknowledged()):
            found["unacknowledged"] = [message["headers"]["id"] for message in held]
        inspect = self.app.control.inspect(destination=[self.hostname()], timeout=10, limit=1)
        for question in ("scheduled", "reserved", "active"):
            said = getattr(inspect, question)()
            if said is None or any(said.values()):
                found[question] = said
        return found

    # -- the end --

    def close(self):
        self._closed.set()
        self.dismiss()
        for process in self._workers:
            process.teardown()
        self.app.backend.result_consumer.cancel_for = lambda task_id: None
        self.app.close()
        for each in (self.broker_proxy, self.locks_proxy):
            each.close()
        for server in (self.locks, self.redis, self.rabbit):
            if server:
                server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def _path(env):
    folders = [env.get("PYTHONPATH"), str(TESTS), os.environ.get("PYTHONPATH")]
    return os.pathsep.join(folder for folder in folders if folder)
