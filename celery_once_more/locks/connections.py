"""The connections of one process to a Redis, each used by one thread or greenlet at a time.

They are redis-py's, with its options and its retries.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import redis
from redis.exceptions import ResponseError

#: seconds for which a free connection is waited for where redis-py has no timeout
PATIENCE_S = 60.0
#: seconds after which whoever waits looks for himself, in case that nobody told him; and so much more for each of the others
LOOK_S, EACH_S = 0.05, 0.001
#: seconds too late at which who waits is woken by a process that had no turn, or had too many others to wake
STILL_S = 0.05


class Connections:
    """A number of connections: a thousand greenlets do not open a thousand of them, they wait in line for a free one.

    They are not handed out by permits, as a signal that raises (a time limit's) may come between any two steps: a connection
    that is lost so is collected, and counts no more.
    """

    def __init__(self, pool: Any, most: int) -> None:
        self._pool, self._most = pool, most
        self._patience_s = pool.connection_kwargs.get("socket_timeout") or PATIENCE_S
        self._all: WeakSet[Any] = WeakSet()  # of connections, which redis-py has no types for
        self._idle: deque[Any] = deque()
        self._line: deque[_Waiter] = deque()
        self._making = threading.Lock()
        self._answered = 0

    def exchange(self, packed: bytes, answers: int, on_failure: Callable[[Exception], None]) -> list[Any]:
        """Send what is packed, and read so many answers; a refusal by the server is an exception among them.

        Args:
            on_failure: is told each time that it is sent again.

        Raises:
            redis.exceptions.RedisError: two tries could not use a connection.
        """
        connection = self._free() or self._next()

        def exchange() -> list[Any]:
            connection.send_packed_command([packed])
            return [_answer(connection) for _ in range(answers)]

        def failed(exc: Exception) -> None:
            connection.disconnect()
            on_failure(exc)

        try:
            found: list[Any] = connection.retry.call_with_retry(exchange, failed)
        except BaseException:  # a time limit's signal, say: the answer may still come, and must not be taken for the next one's
            connection.disconnect()
            self._all.discard(connection)
            self._hand_on(None)
            raise
        self._answered += 1
        self._hand_on(connection)
        return found

    def _free(self) -> Any:
        """A connection that nobody uses, or a new one; ``None`` where all of as many as may be are in use."""
        try:
            return self._idle.pop()
        except IndexError:
            pass
        with self._making:
            if len(self._all) >= self._most:
                return None
            connection = self._pool.connection_class(**self._pool.connection_kwargs)
            self._all.add(connection)
        try:
            connection.connect()  # not by its first command, which would not ask a sentinel for the master
        except BaseException:
            self._all.discard(connection)
            raise
        return connection

    def _hand_on(self, connection: Any) -> None:
        """To whoever has waited longest; ``None`` lets him make a new one."""
        while True:
            try:
                waiter = self._line.popleft()
            except IndexError:
                if connection is not None:
                    self._idle.append(connection)
                return
            if not waiter.gone:
                waiter.connection = connection
                waiter.told.set()
                return

    def _next(self) -> Any:
        """The connection that somebody else has done with: waited for as long as others get their answers, and where nobody
        does, not longer than for an answer of the server. While this process stands still nobody can, and it does not count.
        """
        waiter, answered, deadline = _Waiter(), -1, 0.0
        try:
            while True:
                if answered != self._answered:
                    answered, deadline = self._answered, time.monotonic() + self._patience_s
                elif time.monotonic() > deadline:
                    raise redis.ConnectionError("no connection is free, and nobody gets an answer")
                self._line.append(waiter)
                found = self._free()  # what was given back just before he stood in line
                if found is not None:
                    return found
                deadline += waiter.wait(LOOK_S + EACH_S * len(self._line))
                found, waiter.connection = waiter.connection, None
                if found is not None:
                    return found
                waiter.told.clear()
                self._leave(waiter)
        finally:
            waiter.gone = True
            self._leave(waiter)
            if waiter.connection is not None:
                self._hand_on(waiter.connection)

    def _leave(self, waiter: _Waiter) -> None:
        try:
            self._line.remove(waiter)
        except (ValueError, IndexError):  # he is not in it, or it changed meanwhile: then he is passed over
            pass


class _Waiter:
    def __init__(self) -> None:
        self.told = threading.Event()
        self.connection: Any = None
        self.gone = False

    def wait(self, seconds: float) -> float:
        """Until he is told, or for so long; for how many seconds the process stood still meanwhile."""
        due = time.monotonic() + seconds
        late = 0.0 if self.told.wait(seconds) else time.monotonic() - due
        return late if late > STILL_S else 0.0


def _answer(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as exc:
        return exc
