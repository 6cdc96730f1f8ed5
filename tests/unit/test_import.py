"""Importing the package changes nothing in a program without a ``UniqueTask``, and a publisher never loads Celery's worker.

Each claim is tried in a process of its own.
"""

import os
import subprocess
import sys
import textwrap

LOOK = """
import json, sys
from celery import Celery, signals

def look(app):
    return {
        "receivers": {name: len(s.receivers or ()) for name, s in vars(signals).items() if hasattr(s, "receivers")},
        "steps": {kind: sorted(map(str, steps)) for kind, steps in app.steps.items() if steps},
        "user_options": {kind: len(options) for kind, options in app.user_options.items() if options},
        "conf": sorted(map(str, app.conf)),
        "tasks": sorted(app.tasks),
        "worker": sorted(m for m in sys.modules if m.split(".")[:2] == ["celery", "worker"]),
    }
"""
PLAIN = """
app = Celery("shop", broker="memory://")

@app.task
def settle(event_id):
    return event_id

assert settle.delay("evt").id
assert settle.apply(("evt",)).get() == "evt"
"""
#: ``PLAIN`` with a lock; its store is one that admits everything, as no Redis is at hand
UNIQUE = """
from celery_once_more import UniqueTask
from celery_once_more.locks import Answer
from celery_once_more.runtime import runtime

app = Celery("shop", broker="memory://")

@app.task(base=UniqueTask, lock="until_executed")
def settle(event_id):
    return event_id

class Store:
    def acquire(self, ticket, *, wait_ms, period_ms, place):
        return Answer(verdict="admitted")

vars(runtime(app))["store"] = Store()
assert not settle.delay("evt").duplicate
assert settle.apply(("evt",)).get() == "evt"
app.finalize()
"""
TELL = "print(json.dumps(look(app)))"


def told_by(*parts):
    program = "\n".join(textwrap.dedent(part) for part in parts)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_import_changes_nothing_in_a_program_without_a_unique_task():
    alone = told_by(LOOK, PLAIN, TELL)
    assert told_by("import celery_once_more", LOOK, PLAIN, TELL) == alone
    assert told_by(LOOK, PLAIN, "import celery_once_more", TELL) == alone


def test_an_import_loads_neither_celerys_worker_nor_what_belongs_to_ours():
    loaded = told_by("import celery_once_more, sys", "print([m for m in sys.modules if 'worker' in m or 'keeper' in m])")
    assert loaded.strip() == "[]"


def test_the_package_needs_neither_django_nor_sqlalchemy():
    absent = "import sys; sys.modules.update(django=None, sqlalchemy=None)  # an import of them fails"
    assert told_by(absent, LOOK, UNIQUE, "print('works')").strip() == "works"


def test_a_publisher_of_unique_tasks_loads_no_more_of_celerys_worker_than_one_of_plain_tasks():
    worker = "print(look(app)['worker'])"
    assert told_by(LOOK, UNIQUE, worker) == told_by(LOOK, PLAIN, worker)


def test_a_publisher_of_unique_tasks_does_not_load_the_workers_half():
    loaded = told_by(
        LOOK, UNIQUE, "print(sorted(m for m in sys.modules if m in ('celery_once_more.worker', 'celery_once_more.keeper')))"
    )
    assert loaded.strip() == "[]"


def test_importing_and_binding_open_no_connection_and_start_no_thread():
    refuse = """
    import socket, threading

    def refuse(*_):
        raise AssertionError("a connection")

    socket.socket.connect = refuse
    """
    bind = """
    from celery import Celery
    from celery_once_more import UniqueTask

    app = Celery("shop", broker="redis://127.0.0.1:1", backend="redis://127.0.0.1:1")

    @app.task(base=UniqueTask, lock="until_executed")
    def settle(event_id):
        return event_id

    app.finalize()
    print(threading.active_count())
    """
    assert told_by(refuse, bind).strip() == "1"
