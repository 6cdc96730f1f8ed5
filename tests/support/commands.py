"""The commands that clients send to a Redis, as its ``MONITOR`` shows them; what a script does inside counts as one."""

import uuid
from contextlib import contextmanager

#: how a client introduces itself on a new connection
HANDSHAKE = {"HELLO", "CLIENT", "SELECT", "AUTH", "PING"}


@contextmanager
def commands_of(server, db=None):
    """``with commands_of(server) as sent: …``; ``sent`` is filled at the end: the names, in order; of one database, or of all."""
    end = uuid.uuid4().hex
    sent = []
    with server.client(0) as observer, observer.monitor() as monitor:
        yield sent
        server.client(0).echo(end)
        while True:
            command = monitor.next_command()
            if command["command"] == f"ECHO {end}":
                return
            name = command["command"].split()[0].upper()
            if command["client_type"] != "lua" and name not in HANDSHAKE and db in (None, command["db"]):
                sent.append(name)
