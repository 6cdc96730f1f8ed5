"""What each kind of fault does to the services, to messages and to publishers. ``False``: there was nothing to do it to."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

import redis

from soak.stall import Stall


class OnServices:
    """One method for each kind, of its name."""

    def __init__(self, floor, waiting_calls):
        """``waiting_calls``: a function that gives calls whose runs have not begun."""
        self.floor, self._waiting_calls = floor, waiting_calls

    def pause_locks(self, fault):
        with Stall(self.floor.witness, None):
            self.floor.lock_server.signal(signal.SIGSTOP)
            time.sleep(fault.seconds)
            self.floor.lock_server.signal(signal.SIGCONT)

    def flush_scripts(self, fault):
        self.floor.locks.script_flush()

    def flush_locks(self, fault):
        since = time.time()
        self.floor.locks.flushdb()
        self.floor.witness.say("flush", since=since)

    def drop_broker_connections(self, fault):
        # not 0, where each connection begins: one to the results is not to be lost, which Celery would not mend
        _drop_connections(self.floor.broker_server.client(2), db="2")

    def drop_lock_connections(self, fault):
        _drop_connections(self.floor.locks, db="0")

    def revoke(self, fault):
        calls = self._waiting_calls()
        if not calls:
            return False
        self.floor.app.control.revoke(call := calls[int(fault.which * len(calls))])
        self.floor.witness.say("revoked", call=call)
        return True

    def deliver_again(self, fault):
        messages = self.floor.broker.waiting() + self.floor.broker.unacknowledged()
        if not messages:
            return False
        self.floor.broker.deliver_again(messages[int(fault.which * len(messages))])
        return True

    def deliver_an_old_one_again(self, fault):
        """A message that was put into the queue earlier: most wanted is one that waits for its retry; else any that there was."""
        old, later = self.floor.ledger.messages(), self.floor.broker.waiting() + self.floor.broker.unacknowledged()
        waiting = {message["headers"]["id"]: message["headers"]["retries"] for message in later}
        spent = [message for message in old if message["headers"]["retries"] < waiting.get(message["headers"]["id"], 0)]
        if not (spent or old):
            return False
        self.floor.broker.deliver_again(random.Random(fault.which).choice(spent or old))
        return True

    def kill_publisher(self, fault):
        """Between its lock and its message, of a call that nobody else publishes."""
        n, tasks = int(1e6 * fault.which), [n for n, task in enumerate(self.floor.tasks) if task.lock != "while_executing"]
        command = [sys.executable, "-m", "soak.publisher", str(tasks[n % len(tasks)]), str(n), f"n{n}"]
        ended = subprocess.run(command, env={**os.environ, **self.floor.env}, capture_output=True, timeout=60)
        if ended.returncode == -signal.SIGKILL:
            self.floor.witness.say("never sent", call=f"n{n}")
            return True
        if b"StoreUnavailable" in ended.stderr:  # the lock store is away, by another fault
            return False
        raise AssertionError(f"a publisher ended with {ended.returncode}: {ended.stderr.decode()}")


def _drop_connections(client, db):
    """All but ours, and but the one that keeps the ledger, which is on no database of its own but monitors."""
    ours = client.client_id()
    for other in client.client_list():
        if other["db"] == db and other["id"] != str(ours) and other["cmd"] != "monitor":
            with suppress(redis.ResponseError):  # it went by itself
                client.client_kill_filter(_id=other["id"])
