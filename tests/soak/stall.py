"""What stood still, and for how long: whoever holds a lock meanwhile may lose it."""

import time


class Stall:
    """Told with its beginning and its end: what stood still, for how long; ``worker=None``: the lock store."""

    def __init__(self, witness, worker):
        self.witness, self.worker = witness, worker

    def __enter__(self):
        self.since = time.time()
        return self

    def __exit__(self, *_):
        self.witness.say("stall", worker=self.worker, since=self.since, until=time.time())
