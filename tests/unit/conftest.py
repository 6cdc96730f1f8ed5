"""An app of each test's own, and a store that only writes down what it was asked: unit tests start no service."""

import pytest
from celery import Celery, _state
from celery.backends import cache

from celery_once_more.locks import Answer
from celery_once_more.runtime import runtime


class RecordingStore:
    """Admits every publish and lets every run in, unless told otherwise."""

    def __init__(self):
        self.acts = []
        self.answer = Answer(verdict="admitted")
        self.started = Answer(verdict="run", token=1)

    def acquire(self, ticket, *, wait_ms, period_ms=0, place=None):
        self.acts.append(("acquire", ticket, wait_ms))
        return self.answer

    def release(self, ticket):
        self.acts.append(("release", ticket))
        return True

    def start(self, ticket, *, run, lease_ms, redelivered, period_ms=0):
        self.acts.append(("start", ticket))
        return self.started

    def finish(self, ticket, *, run, only_held=False):
        self.acts.append(("finish", ticket))
        return "freed"

    @property
    def tickets(self):
        return [act[1] for act in self.acts if act[0] == "acquire"]

    @property
    def names(self):
        return [act[0] for act in self.acts]


@pytest.fixture(autouse=True)
def no_shared_task_outlives_its_test(monkeypatch):
    """Celery keeps the tasks that every app shall have in one set per process."""
    monkeypatch.setattr(_state, "_on_app_finalizers", set(_state._on_app_finalizers))


@pytest.fixture
def app():
    cache._DUMMY_CLIENT_CACHE.clear()  # the results of every app in this process
    app = Celery("unit", broker="memory://", backend="cache+memory://", set_as_current=False)
    yield app
    app.close()


@pytest.fixture
def store(app):
    """The store of ``app``."""
    recording = RecordingStore()
    vars(runtime(app))["store"] = recording
    return recording


@pytest.fixture
def task(app):
    """``task(function, lock_args=["x"])`` -> the function as a bound unique task."""
    from celery_once_more import UniqueTask

    def make(function, *, register=app, **options):
        options = {"base": UniqueTask, "lock": "until_executed", "name": f"unit.{function.__name__}", **options}
        return register.task(lazy=False, shared=False, **options)(function)

    return make
