"""Commands to Redis and their answers, in about half the time of ``redis.Redis.execute_command``.

Connections are redis-py's, with its options, its pool and its retries. What is left out is its look at a connection before
each use, which costs as much as the rest: a dead one shows itself when it is used, and the commands are sent again on a new
one. An act that was sent twice changes nothing the second time, so here that is safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import redis
from redis.exceptions import ResponseError

Command = Sequence[str | int]


class Wire:
    """The connections of one process; each is used by one thread, or greenlet, at a time, and kept for the next."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self._pool = client.connection_pool
        self._idle: deque[Any] = deque()  # of connections, which redis-py has no types for

    def send(self, command: Command) -> Any:
        """One command in one round trip.

        Raises:
            redis.exceptions.RedisError: the server's refusal, or a connection that two tries could not use.
        """
        (answer,) = self.send_many([command])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def send_many(self, commands: Sequence[Command]) -> list[Any]:
        """All commands in one pipelined round trip; an answer may be the server's refusal of this one, as an exception."""
        packed = [b"".join(map(pack, commands))]
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._pool.get_connection()

        def exchange() -> list[Any]:
            connection.send_packed_command(packed)
            return [_answer(connection) for _ in commands]

        try:
            answers: list[Any] = connection.retry.call_with_retry(exchange, lambda _: connection.disconnect())
        except BaseException:  # a time limit's signal, say: the answer may still come, and must not be taken for the next one's
            connection.disconnect()
            self._pool.release(connection)
            raise
        self._idle.append(connection)
        return answers


def _answer(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as exc:
        return exc


def pack(command: Command) -> bytes:
    """A command as the Redis protocol wants it: the number of its parts, then the size in bytes and the text of each."""
    packed = [f"*{len(command)}\r\n"]
    for part in map(str, command):
        size = len(part) if part.isascii() else len(part.encode("utf-8", "surrogatepass"))
        packed.append(f"${size}\r\n{part}\r\n")
    return "".join(packed).encode("utf-8", "surrogatepass")
