"""One command to Redis and its answer, in about half the time of ``redis.Redis.execute_command``.

Connections are redis-py's, with its options and its retries. What is left out is its look at a connection before each use,
which costs as much as the rest: a dead one shows itself when it is used, and the command is sent again on a new one.
An act that was sent twice answers as the first time, so here that is safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import redis
from redis.exceptions import ResponseError


class Wire:
    """The connections of one process; each is used by one thread, or greenlet, at a time."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self._idle: deque[Any] = deque()  # of connections, which redis-py has no types for

    def send(self, *command: str | int) -> Any:
        packed = [pack(command)]
        pool = self.client.connection_pool
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = pool.get_connection()

        def exchange() -> Any:
            connection.send_packed_command(packed)
            return connection.read_response()

        try:
            answer = connection.retry.call_with_retry(exchange, lambda _: connection.disconnect())
        except ResponseError:  # an answer too, and all of it was read
            self._idle.append(connection)
            raise
        except BaseException:  # a time limit's signal, say: the answer may still come, and must not be taken for the next one's
            connection.disconnect()
            pool.release(connection)
            raise
        self._idle.append(connection)
        return answer


def pack(command: Sequence[str | int]) -> bytes:
    """A command as the Redis protocol wants it: the number of its parts, then the size in bytes and the text of each."""
    packed = [f"*{len(command)}\r\n"]
    for part in map(str, command):
        size = len(part) if part.isascii() else len(part.encode())
        packed.append(f"${size}\r\n{part}\r\n")
    return "".join(packed).encode()
