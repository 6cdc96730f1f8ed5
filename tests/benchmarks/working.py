"""What a run costs in a real worker, with one process and tasks that do nothing; and what an import costs."""

import os
import statistics
import subprocess
import sys
import tempfile
import time

from measure import Row, commands
from publishing import fresh
from support.waiting import eventually
from support.worker_process import WorkerProcess


def throughput(server, lock_server, app, tasks, rounds, n):
    """Queue n tasks, let the worker have the queue, time it from the first result to the last; each kind in every round."""
    here = os.path.dirname(__file__)
    env = {"PYTHONPATH": os.pathsep.join([here, os.path.dirname(here)])}
    worker = WorkerProcess("-c", "1", "-Q", "idle", "-l", "WARNING", app="bench_app", name="bench", env=env)
    try:
        eventually(lambda: app.control.ping(timeout=0.5), within=60, what=f"the worker: {worker.log_path}")
        locks = lock_server.client(0)
        seconds = {task: [] for task in tasks}
        trips = []
        for number in range(rounds + 1):
            for task in tasks:
                asked = commands(locks, lambda task=task: seconds[task].append(_drained(server, app, task, n)))
                if number and task is tasks[0]:
                    trips.append((asked["evalsha"][0] - n) / n)  # n of them are the publishes
        ratio = statistics.median(b / a for a, b in zip(*(seconds[task][1:] for task in tasks), strict=True))
        each = [statistics.median(seconds[task][1:]) / n * 1e6 for task in tasks]
        return [
            Row(what="EVALSHA per run", figure=f"{statistics.median(trips):g}", target="2", met=set(trips) == {2.0}),
            Row(what="runs per second of a task that does nothing, worker of one process, over the same plain task",
                figure=f"{ratio:.2f}x; {1e6 / each[0]:.0f} against {1e6 / each[1]:.0f}", target="≥ 0.75x", met=ratio >= 0.75),
        ]  # fmt: skip
    finally:
        worker.teardown()


def _drained(server, app, task, n):
    queue = f"bench_{task.__name__}"
    results = server.client(1)
    results.flushdb()
    for publish in fresh(task, queue=queue)(n):
        publish()
    app.control.add_consumer(queue, reply=True, timeout=10, limit=1)
    eventually(results.dbsize, within=60, what="the first result")  # Redis may be asked about the queue a second later
    begin = time.perf_counter()
    eventually(lambda: results.dbsize() >= n, within=120, what=f"{n} results")
    took = time.perf_counter() - begin
    app.control.cancel_consumer(queue, reply=True, timeout=10, limit=1)
    return took


IMPORTS = {
    "from celery import Celery, Task": "a bare `from celery import Celery, Task`",
    "from celery import Celery, Task; import celery.backends.redis, kombu.transport.redis, celery.app.amqp":
        "Celery with its Redis broker and backend",
}  # fmt: skip


def imports(rounds):
    """Each in a process of its own, from byte code, which the first round writes."""
    milliseconds = {before: [] for before in IMPORTS}
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        for _ in range(rounds + 1):
            for before, seen in milliseconds.items():
                code = f"{before}\nimport time\nt = time.perf_counter()\nimport celery_once_more\nprint(time.perf_counter() - t)"
                told = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
                seen.append(float(told.stdout) * 1e3)
    return [
        Row(what=f"`import celery_once_more` after {after}", figure=f"{statistics.median(milliseconds[before][1:]):.0f} ms")
        for before, after in IMPORTS.items()
    ]
