"""The store that the soak's tasks write to, as a user's would be: it fences late writes, and notes who was inside when.

It lives in a Redis of its own, and knows nothing of the package but the fencing token that a run brings along. A place has one
occupant. Whoever enters puts the one before it out, if the token is greater, and says whether that one's process was still
alive; whoever leaves is told whether the place was still its own, which is the write. ``verdict.py`` judges it all afterwards.
"""

import json
import os
import time
from functools import cached_property

import psutil
import redis

ENTER = """
local clock = redis.call('TIME')
local n = redis.call('INCR', 'entries')
local before, token, process = unpack(redis.call('HMGET', KEYS[1], 'n', 'token', 'process'))
local refused = before and tonumber(token) >= tonumber(ARGV[1])
if not refused then redis.call('HSET', KEYS[1], 'n', n, 'token', ARGV[1], 'process', ARGV[2]) end
local event = cjson.decode(ARGV[3])
event.event, event.n, event.at, event.place = 'enter', n, clock[1] + clock[2] / 1e6, KEYS[1]
event.met, event.refused = tonumber(before) or 0, refused and true or false
redis.call('RPUSH', 'events', cjson.encode(event))
return {n, process or ''}
"""
LEAVE = """
local clock = redis.call('TIME')
local mine = redis.call('HGET', KEYS[1], 'n') == ARGV[1]
if mine then redis.call('DEL', KEYS[1]) end
local event = cjson.decode(ARGV[2])
event.event, event.n, event.at, event.written = 'leave', tonumber(ARGV[1]), clock[1] + clock[2] / 1e6, mine
redis.call('RPUSH', 'events', cjson.encode(event))
return mine and 1 or 0
"""


class Visit:
    """One run, inside its place."""

    def __init__(self, witness, place, number):
        self.witness, self.place, self.number = witness, place, number
        self.left = False

    def leave(self, outcome, **more):
        """Write: whether the place was still this run's own. ``outcome``: how the task is about to end."""
        self.left = True
        event = json.dumps({"outcome": outcome, **more})
        return bool(self.witness.script(LEAVE)(keys=[self.place], args=[self.number, event]))


class Witness:
    def __init__(self, url):
        self.url = url

    @cached_property
    def redis(self):
        return redis.Redis.from_url(self.url, decode_responses=True)

    def script(self, text):
        return self.redis.register_script(text)

    def say(self, event, **more):
        """The moment of it."""
        at = time.time()
        self.redis.rpush("events", json.dumps({"event": event, "at": at, **more}))
        return at

    def enter(self, place, token, **more):
        about = json.dumps({"token": token, **more})
        number, before = self.script(ENTER)(keys=[place], args=[token, json.dumps(_me()), about])
        if before:
            self.say("met", n=number, alive=alive(*json.loads(before)))
        return Visit(self, place, number)

    def events(self):
        return [json.loads(line) for line in self.redis.lrange("events", 0, -1)]


def _me():
    return os.getpid(), psutil.Process().create_time()


def alive(pid, created):
    try:
        process = psutil.Process(pid)
        return process.create_time() == created and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
