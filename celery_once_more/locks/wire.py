"""Commands to Redis and their answers, in about half the time of ``redis.Redis.execute_command``.

What is left out is redis-py's look at a connection before each use, which costs as much as the rest: a dead one shows itself when
it is used, and the commands are sent again on a new one. An act that was sent twice changes nothing the second time, so here that
is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redis

from celery_once_more.locks.connections import Connections

Command = Sequence[str | int]


class Wire:
    """The connections of one process; each is used by one thread, or greenlet, at a time, and kept for the next."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        most = client.connection_pool.max_connections
        self._singly = Connections(client.connection_pool, max(1, most - 1))
        #: a connection for the pipelines alone, so that a worker's leases are renewed however busy it is
        self._many = Connections(client.connection_pool, 1) if most > 1 else self._singly

    def send(self, command: Command, on_failure: Callable[[Exception], None] = lambda _: None) -> Any:
        """One command in one round trip.

        Args:
            on_failure: is told each time that it is sent again.

        Raises:
            redis.exceptions.RedisError: the server's refusal, or a connection that two tries could not use.
        """
        (answer,) = self._singly.exchange(pack(command), 1, on_failure)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def send_many(self, commands: Sequence[Command]) -> list[Any]:
        """All commands in one pipelined round trip; an answer may be the server's refusal of this one, as an exception."""
        return self._many.exchange(b"".join(map(pack, commands)), len(commands), lambda _: None)


def pack(command: Command) -> bytes:
    """A command as the Redis protocol wants it: the number of its parts, then the size in bytes and the text of each."""
    packed = [f"*{len(command)}\r\n"]
    for part in map(str, command):
        size = len(part) if part.isascii() else len(part.encode("utf-8", "surrogatepass"))
        packed.append(f"${size}\r\n{part}\r\n")
    return "".join(packed).encode("utf-8", "surrogatepass")
