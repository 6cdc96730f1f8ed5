"""What the broker's Redis was told, in its own order (``MONITOR``), kept as it came: by whom, when, what.

Celery stores that a run is to be retried after it has published the retry, which may have run by then, and been stored: it
asks first whether SUCCESS is there, and then overwrites it all the same, if it came in between. Here that can be told.
"""

import json
import re
import socket
import threading
from typing import NamedTuple

_LINE = re.compile(rb'\+?([\d.]+) \[(\d+) ([^\]]*)\] "([^"]+)" ?(.*)', re.DOTALL)
_TEXT = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)


class Command(NamedTuple):
    at: float
    db: int
    #: address of the connection
    by: str
    name: str
    #: still as ``MONITOR`` quotes them
    raw: bytes

    @property
    def args(self):
        return [text.decode("unicode_escape") for text in _TEXT.findall(self.raw)]


class Ledger:
    def __init__(self, port, path):
        self.path = path
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(b"MONITOR\r\n")
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self):
        with open(self.path, "wb") as file:
            while True:
                try:
                    data = self._socket.recv(1 << 16)
                except OSError:
                    return
                if not data:
                    return
                file.write(data)
                file.flush()

    def commands(self, *names):
        """Those of these names, oldest first."""
        for line in self.path.read_bytes().split(b"\r\n"):
            found = _LINE.match(line)
            if found and (name := found[4].decode().upper()) in names:
                yield Command(float(found[1]), int(found[2]), found[3].decode(), name, found[5])

    def messages(self):
        """Each that was put into the queue, oldest first, as dictionaries."""
        return [json.loads(command.args[1]) for command in self.commands("LPUSH", "RPUSH") if command.raw.startswith(b'"celery"')]

    def stored(self, task_id):
        """What was stored as the result of a task id, oldest first: ``(status, result)``."""
        key = f'"celery-task-meta-{task_id}"'.encode()
        metas = [json.loads(command.args[2]) for command in self.commands("SETEX") if command.raw.startswith(key)]
        return [(meta["status"], meta["result"]) for meta in metas]

    def close(self):
        self._socket.close()
