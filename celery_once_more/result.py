"""``UniqueResult``: what a publish returns, the result of the call that was let in, or of the one that is on its way."""

from __future__ import annotations

import time
from typing import Any

from celery import VERSION, exceptions
from celery.result import AsyncResult, assert_will_not_block

#: Celery 5.6 keeps one waiter per task id: a second one is never told, and each that goes ends the first one's wait, too
#: (Celery issue 4925, mended in 5.7)
_ONE_WAITER = (VERSION.major, VERSION.minor) < (5, 7)


class UniqueResult(AsyncResult):
    """The result of a publish; of the holder's call where the publish was refused as a duplicate."""

    #: the call was refused, and this is the result of the call that holds the lock
    duplicate: bool = False

    def get(self, timeout: float | None = None, propagate: bool = True, interval: float = 0.5, **kwargs: Any) -> Any:
        """As Celery's."""
        if self.duplicate and _ONE_WAITER and not self._cache:
            if kwargs.get("disable_sync_subtasks", True):
                assert_will_not_block()
            self._poll(timeout, interval, kwargs.get("on_interval"))
        return super().get(timeout=timeout, propagate=propagate, interval=interval, **kwargs)

    def _poll(self, timeout: float | None, interval: float, on_interval: Any) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.ready():
            if on_interval:
                on_interval()
            left = interval if deadline is None else min(interval, deadline - time.monotonic())
            if left <= 0:
                raise exceptions.TimeoutError("The operation timed out.")
            time.sleep(left)

    if _ONE_WAITER:

        def __del__(self) -> None:
            if not self.duplicate:
                super().__del__()

    def __copy__(self) -> UniqueResult:
        copied: UniqueResult = super().__copy__()
        copied.duplicate = self.duplicate
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.__reduce_args__(), self.duplicate)


def _restore(cls: type[UniqueResult], args: tuple[Any, ...], duplicate: bool) -> UniqueResult:
    result = cls(*args)
    result.duplicate = duplicate
    return result
