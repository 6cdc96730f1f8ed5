"""Gates in the witness's Redis: a task stops at one until the test opens it, so that no test has to guess a duration."""

import time

#: seconds after which a task gives up, so that a broken test leaves nothing behind for long
GIVE_UP = 90


class Gates:
    def __init__(self, redis):
        self.redis = redis

    def open(self, *names):
        for name in names:
            self.redis.sadd("gates", name)

    def open_all(self):
        self.open("*")

    def wait(self, name):
        deadline = time.monotonic() + GIVE_UP
        while not any(self.redis.smismember("gates", [str(name), "*"])):
            if time.monotonic() > deadline:
                raise AssertionError(f"gate {name} was never opened")
            time.sleep(0.02)
