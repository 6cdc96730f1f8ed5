"""The reaper, run as often as beat would; it tells the witness whom it freed for want of a message."""

import logging
import threading
import time

from celery_once_more.exceptions import StoreUnavailable
from celery_once_more.reaper import reap

#: seconds between two passes
EVERY = 1.0


class Reaping:
    """``with Reaping(floor): …``; all that this process's half of the package says goes to a file, and not between the lines."""

    def __init__(self, floor):
        self.floor, self._over = floor, threading.Event()
        self._freed = _Freed()
        self._file = logging.FileHandler(floor.folder / "publisher.log")
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        logger = logging.getLogger("celery_once_more")
        self._propagated, logger.propagate = logger.propagate, False
        for handler in (self._file, self._freed):
            logger.addHandler(handler)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        logger = logging.getLogger("celery_once_more")
        logger.propagate = self._propagated
        for handler in (self._file, self._freed):
            logger.removeHandler(handler)
        self._file.close()

    def _run(self):
        while not self._over.wait(EVERY):
            since = time.time()
            try:
                reap(self.floor.app)
            except StoreUnavailable:
                continue  # one of our faults; what was freed until then is told by the next pass
            finally:
                calls = self._freed.taken()
                if calls:
                    messages = self.floor.broker.waiting() + self.floor.broker.unacknowledged()
                    there = [message["headers"]["id"] for message in messages]
                    self.floor.witness.say("orphans", calls=calls, since=since, there=there)


class _Freed(logging.Handler):
    """No signal says why a waiting holder was freed, the log does."""

    def __init__(self):
        super().__init__()
        self._calls = []

    def emit(self, record):
        if "its message is gone" in record.msg:
            self._calls.append(record.args[1])

    def taken(self):
        calls, self._calls = self._calls, []
        return calls
