"""An independent witness: tasks write what they do to a Redis database of its own, through plain redis-py.

It knows nothing of the package. ``run(key)`` around a task's body notes its start and its end, and an overlap: a start
while another process that started the same key, and has not ended, is still alive.
"""

import json
import os
import time
from contextlib import contextmanager

import psutil
import redis


class Witness:
    def __init__(self, url):
        self.redis = redis.Redis.from_url(url, decode_responses=True)

    def say(self, event, key, **more):
        line = {"event": event, "key": str(key), "pid": os.getpid(), "at": time.time(), **more}
        self.redis.rpush("events", json.dumps(line))

    @contextmanager
    def run(self, key, **more):
        me = f"{os.getpid()}:{time.monotonic_ns()}"
        others = [pid for pid in self._inside(key, me) if alive(pid)]
        self.say("start", key, overlaps=others, **more)
        try:
            yield
        finally:
            self.redis.hdel(f"inside:{key}", me)
            self.say("end", key, **more)

    def _inside(self, key, me):
        with self.redis.pipeline() as pipe:
            pipe.hset(f"inside:{key}", me, 1)
            pipe.hkeys(f"inside:{key}")
            _, names = pipe.execute()
        return [int(name.split(":")[0]) for name in names if name != me]

    def events(self, event=None, key=None):
        """What was said, in order, as dictionaries."""
        said = [json.loads(line) for line in self.redis.lrange("events", 0, -1)]
        return [e for e in said if event in (None, e["event"]) and (key is None or e["key"] == str(key))]

    def count(self, event, key=None):
        return len(self.events(event, key))

    def overlaps(self):
        return [e for e in self.events("start") if e["overlaps"]]


def alive(pid):
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
