"""Each message on its way from its queue into a worker's hands, as the ledger has it; and those that kombu lost there.

kombu's Redis transport takes a message out of its queue with one command, whose reply a worker reads when it gets to it (while
its prefetch is full: when a run ends), and then notes it in ``unacked`` with another. Whoever dies, or loses this connection,
before that loses the message, whatever is built upon it. It can be told for certain: a message that was put into its queue once
more than it was noted, and is not there; and a connection of a worker that ended with such a reply unread, each of them one
message. Nothing else is kombu's loss.
"""

import json
import math
from dataclasses import dataclass, field
from typing import NamedTuple

#: seconds that a worker's question for a message waits in the broker (kombu's ``brpop_timeout``), and some for a busy machine
ASKS_FOR = 1 + 1
#: faults that end a connection to the broker
CUTS = ("kill main", "kill group", "cold shutdown", "drop broker connections")


@dataclass
class Message:
    """One delivery tag."""

    task_id: str
    text: str
    put: list = field(default_factory=list)
    noted: list = field(default_factory=list)

    def in_between(self, since, until):
        """Not noted for the last time that it was put, at some time between; where it was not in its queue: in between."""
        return sum(at < until for at in self.put) > sum(at < since for at in self.noted)


class Unread(NamedTuple):
    """A connection that ended after a worker had asked for a message, and before it asked for anything else."""

    worker: str
    asked: float
    #: when the same worker asked again, on another connection
    again: float


class Loss(NamedTuple):
    task_id: str
    put: float
    #: the connection, and the fault that ended it; ``None``: there is none, and the message is gone all the same
    unread: Unread | None
    cause: str | None


class Handovers:
    def __init__(self, ledger):
        self.messages, self._asked, self._open = {}, [], {}
        for command in ledger.commands("LPUSH", "RPUSH", "HSET", "BRPOP", "CLIENT"):
            self._read(command)

    def _read(self, command):
        if command.name == "CLIENT":
            if command.raw.upper().startswith(b'"SETNAME"'):  # a connection begins: the port may have been another's before
                self._open[command.by] = command.args[1]
        elif command.db != 2:
            return
        elif command.name == "BRPOP":
            self._asked.append((command.at, self._open.get(command.by, "?"), command.by))
        elif command.raw.startswith(b'"celery"'):
            text = command.args[1]
            message = json.loads(text)
            tag = message["properties"]["delivery_tag"]
            self.messages.setdefault(tag, Message(message["headers"]["id"], text)).put.append(command.at)
        elif command.raw.startswith(b'"unacked"'):
            tag = command.args[1]
            if tag in self.messages:
                self.messages[tag].noted.append(command.at)

    def in_between(self, task_id, since, until):
        return any(message.in_between(since, until) for message in self.messages.values() if message.task_id == task_id)

    def delivered_twice(self):
        """Task ids of which a message came into more than one worker's hands, or twice into one's."""
        return {message.task_id for message in self.messages.values() if len(message.noted) > 1}

    def _unread(self, alive):
        """``alive``: addresses of the connections that there still are."""
        following = {}
        for at, worker, by in reversed(self._asked):
            again, where = following.get(worker, (math.inf, None))
            if by not in alive and where != by:
                yield Unread(worker, at, again)
            following[worker] = at, by

    def lost(self, still_there, alive, faults):
        """Task id -> :class:`Loss`; ``still_there``: delivery tags, ``faults``: those that were applied."""
        gone = [(message.put[-1], message.task_id) for tag, message in self.messages.items()
                if len(message.put) > len(message.noted) and tag not in still_there]  # fmt: skip
        ends, found = list(self._unread(alive)), {}
        for put, task_id in sorted(gone, reverse=True):  # who ended after the last one may have lost any, so it chooses first
            causes = ((end, _cause(end, faults)) for end in ends if end.asked + ASKS_FOR > put)
            end, cause = next(((end, cause) for end, cause in causes if cause), (None, None))
            if end:
                ends.remove(end)
            found[task_id] = Loss(task_id, put, end, cause)
        return found


def _cause(end, faults):
    """The fault that ended this connection."""
    for fault in faults:
        if fault.kind in CUTS and fault.victim in (None, end.worker) and fault.begun < end.again and fault.over > end.asked:
            return f"{fault.kind} {fault.victim or ''}".strip()
    return None
