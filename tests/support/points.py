"""Crash points as a test of the instruments sees them, and a forked child to try things in."""

import json
import os
import traceback
from contextlib import contextmanager

from celery_once_more import crash


class Died(BaseException):
    """What a watcher raises in the place of a death."""


class Seen(list):
    """A watcher that writes down ``(when, kind, what)``, and dies at the point with the number ``dies_at``, counted from 1.

    ``keys`` are the keys of the points, in the same order.
    """

    dies_at = None

    def __init__(self):
        super().__init__()
        self.keys = []

    def reach(self, when, kind, what, *, key):
        self.append((when, kind, what))
        self.keys.append(key)
        if len(self) == self.dies_at:
            raise Died

    def ahead_s(self):
        return 0.0


@contextmanager
def seeing(watch, dies_at=None):
    """Under one instrument's ``watch``."""
    seen = Seen()
    seen.dies_at = dies_at
    crash.watcher, before = seen, crash.watcher
    try:
        with watch:
            yield seen
    finally:
        crash.watcher = before


def sql(*whats):
    """The two points of each statement in turn."""
    return [(when, "sql", what) for what in whats for when in ("before", "after")]


def around(kind, what):
    return [("before", kind, what), ("after", kind, what)]


COMMIT = around("commit", "COMMIT")
ROLLBACK = around("rollback", "ROLLBACK")


def in_child(body):
    """What ``body()`` returned in a forked child, which ends as one that a test ends; an error in it is one here."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                told = {"result": body()}
            except BaseException as exc:
                told = {"error": f"{type(exc).__name__}: {exc}", "traceback": traceback.format_exc()}
            os.write(write, json.dumps(told).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = json.loads(pipe.read() or '{"error": "the child died", "traceback": ""}')
    os.waitpid(pid, 0)
    if "error" in told:
        raise ChildFailed(told["error"] + "\n" + told["traceback"])
    return told["result"]


class ChildFailed(Exception):
    pass
