"""Which transactions this thread has open on an engine, as the engine itself tells.

Not seen: a session that has sent no statement yet; another engine, also one that this one was made from with
``execution_options``; what began before this watch; and a BEGIN that is SQL text on an AUTOCOMMIT connection.
"""

from __future__ import annotations

import os
import threading
import weakref

from sqlalchemy import Connection, Engine, event

#: one watch per engine, however often reservations are made for it
_watches: weakref.WeakKeyDictionary[Engine, OpenTransactions] = weakref.WeakKeyDictionary()


class OpenTransactions(threading.local):
    """Begins are noted; whether one is open still, its connection says. A forked child has none of its parent's."""

    def __init__(self) -> None:
        self._begun: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._pid = os.getpid()

    def any(self) -> bool:
        if self._pid != os.getpid():
            self._begun, self._pid = weakref.WeakSet(), os.getpid()
        self._begun = weakref.WeakSet(one for one in self._begun if one.in_transaction())
        return bool(self._begun)

    def note(self, connection: Connection, *_: object) -> None:
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            self._begun.add(connection)


def watch(engine: Engine) -> OpenTransactions:
    found = _watches.get(engine)
    if found is None:
        found = _watches[engine] = OpenTransactions()
        event.listen(engine, "begin", found.note)
        event.listen(engine, "begin_twophase", found.note)
    return found
