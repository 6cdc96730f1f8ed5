"""A task body in this process that stops in each of its runs until its test lets it go on."""

import threading
from collections import defaultdict
from contextlib import contextmanager

from celery_once_more import current_lock
from support.apps import working
from support.waiting import eventually


class Stops:
    """``unique(app, stops.body, bind=True, …)``; its runs are counted from 1."""

    def __init__(self):
        #: the fencing token of each run that has entered its body
        self.tokens = []
        #: what a run does when it has entered its body, ``starts[n] = lambda task: …``
        self.starts = {}
        #: what these have to tell
        self.seen = []
        #: what a run does after it was let go on, ``ends[n] = lambda task: …``; else it returns its argument
        self.ends = {}
        #: how many runs with this argument were in their bodies at once, at most
        self.most = defaultdict(int)
        self._now = defaultdict(int)
        self._gates = defaultdict(threading.Event)
        self._lock = threading.Lock()
        self._all = False
        self._runs = 0

    @property
    def body(self):
        def stops(task, key, note=None):
            with self._lock:
                n = self._runs = self._runs + 1
                gate = self._gates[n]
                if self._all:
                    gate.set()
            if n in self.starts:
                self.starts[n](task)
            self.tokens.append(current_lock.fencing_token)
            with self._inside(key):
                assert gate.wait(60), f"run {n} was never let go on"
            return self.ends[n](task) if n in self.ends else key

        return stops

    @contextmanager
    def _inside(self, key):
        with self._lock:
            self._now[key] += 1
            self.most[key] = max(self.most[key], self._now[key])
        try:
            yield
        finally:
            with self._lock:
                self._now[key] -= 1

    def entered(self, n):
        """Wait until run ``n`` is in its body."""
        eventually(lambda: len(self.tokens) >= n, what=f"run {n}")

    def open(self, n):
        with self._lock:
            self._gates[n].set()

    def open_all(self):
        with self._lock:
            self._all = True
            for gate in self._gates.values():
                gate.set()

    @contextmanager
    def working(self, app, concurrency=4):
        """A worker in this process with a pool of threads; at its end every run is let go on."""
        with working(app, pool="threads", concurrency=concurrency):
            try:
                yield
            finally:
                self.open_all()
