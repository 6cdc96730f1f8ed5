"""What a test of queues sees and does: publishers of ``crossroads``, its gates and its witness, its worker."""

import json
from contextlib import contextmanager

from kombu import Connection

from support.waiting import eventually
from support.worker_process import WorkerProcess


@contextmanager
def crossroads_on(redis_server, conf, queues):
    """Its publishers on an empty Redis, with these settings, and without a worker yet."""
    redis_server.client(0).flushall()
    import crossroads

    roads = Crossroads(crossroads, conf, queues)
    yield roads
    roads.close()
    redis_server.client(0).flushall()


class Crossroads:
    def __init__(self, module, conf, queues):
        self.conf, self.queues = conf, queues
        self.app, self.stranger = module.build(**conf), module.stranger(**conf)
        self.witness, self.gates = module.witness, module.gates
        self.workers = []

    def start_worker(self, name, *more, concurrency=4, **conf):
        """``more`` are its options, and ``conf`` are settings over those of the publishers."""
        options = ("-c", str(concurrency), "-Q", ",".join(self.queues), *more)
        worker = WorkerProcess(*options, app="crossroads", name=name, env={"SHOP_CONF": json.dumps({**self.conf, **conf})})
        self.workers.append(worker)
        worker.ready()
        # what is sent to every worker on Redis is lost on those whose loop has not turned yet
        eventually(lambda: self.app.control.ping([f"{name}@h"], timeout=1, limit=1), what="its answer")
        return worker

    def task(self, name):
        return self.app.tasks[f"crossroads.{name}"]

    def runs(self, key):
        return self.witness.events("start", key)

    def running(self, key, n=1):
        """Wait until run ``n`` of a key has begun."""
        return eventually(lambda: (runs := self.runs(key)) and len(runs) >= n and runs, within=20, what=f"run {n} of {key}")

    def acknowledged(self, call):
        """Wait until its worker has acknowledged the message of a call that is running."""
        look = self.app.control.inspect(timeout=2)
        eventually(lambda: any(request["id"] == call.id and request["acknowledged"]
                               for requests in (look.active() or {}).values() for request in requests),
                   what=f"the acknowledgement of {call.id}")  # fmt: skip

    def over(self, key, *results, runs):
        """Let all runs through: each result is the key, and so many ran, never two at once."""
        for n in range(1, runs + 1):
            self.gates.open(f"{key}:{n}")
        assert [result.get(timeout=20) for result in results] == [key] * len(results)
        eventually(lambda: self.witness.count("end", key) == runs)
        assert len(self.runs(key)) == runs

    def overlaps(self, key):
        return [start for start in self.witness.overlaps() if start["key"] == key]

    def send_bare(self, name, key, task_id, **route):
        """As a program of another language does: no Celery, and no ticket."""
        headers = {"lang": "other", "task": f"crossroads.{name}", "id": task_id, "root_id": task_id}
        body = [[key], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
        with Connection(self.app.conf.broker_url) as connection, connection.Producer() as producer:
            producer.publish(body, serializer="json", headers=headers, correlation_id=task_id, **route)
        return self.app.AsyncResult(task_id)

    def close(self):
        self.gates.open_all()
        for worker in self.workers:
            worker.teardown()
        for app in (self.app, self.stranger):
            app.backend.result_consumer.cancel_for = lambda task_id: None
            app.close()
