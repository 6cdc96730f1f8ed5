"""A task body in this process that stops in each of its runs until its test lets it go on."""

import threading
from collections import defaultdict
from contextlib import contextmanager

from support.apps import working
from support.waiting import eventually

from celery_once_more import current_lock


class Stops:
    """``unique(app, stops.body, bind=True, …)``; its runs are counted from 1."""

    def __init__(self):
        #: the fencing token of each run that has entered its body
        self.tokens = []
        #: what a run does after it was let go on, ``ends[n] = lambda task: …``; else it returns its argument
        self.ends = {}
        self._gates = defaultdict(threading.Event)
        self._lock = threading.Lock()
        self._all = False

    @property
    def body(self):
        def stops(task, key):
            with self._lock:
                self.tokens.append(current_lock.fencing_token)
                n = len(self.tokens)
                gate = self._gates[n]
                if self._all:
                    gate.set()
            assert gate.wait(60), f"run {n} was never let go on"
            end = self.ends.get(n)
            return key if end is None else end(task)

        return stops

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
