"""Every error of this package, under one root.

Each one survives pickling and Celery's JSON results, which rebuild an exception from its ``args`` alone:
the attributes are the positional arguments, and the sentence is made when it is shown.
"""

from __future__ import annotations

from typing import Any

from celery.exceptions import ImproperlyConfigured, TaskRevokedError


class OnceMoreError(Exception):
    """Something in celery-once-more went wrong."""

    def _said(self, place: int) -> str:
        """One of ``args``; an error that somebody built with too few can still be shown."""
        return str(self.args[place]) if place < len(self.args) else "?"


class ConfigurationError(OnceMoreError, ImproperlyConfigured):
    """An option of a task, or a setting, is wrong; the sentence names it and the nearest right word."""


class ArgumentsError(OnceMoreError, TypeError):
    """An argument that has no stable JSON form, or that ``strict_args`` refuses. ``args``: task name, argument, what is wrong."""

    @property
    def task(self) -> str:
        return self._said(0)

    @property
    def argument(self) -> str:
        return self._said(1)

    def __str__(self) -> str:
        return f"task {self.task!r}: argument {self.argument} {self._said(2)}"


class _Refused(OnceMoreError):
    """A call met a lock that another call holds. ``args``: task name, digest, task id of the holder."""

    @property
    def task(self) -> str:
        return self._said(0)

    @property
    def digest(self) -> str:
        return self._said(1)

    @property
    def holder(self) -> str:
        return self._said(2)


class LockConflict(_Refused):
    """The strategy ``raise``: the call is a duplicate of ``holder``."""

    def __str__(self) -> str:
        return f"task {self.task!r}: lock {self.digest} is held by {self.holder}"


class DuplicateDropped(_Refused, TaskRevokedError):
    """The result of a delivery that was dropped as a duplicate of ``holder``."""

    def __str__(self) -> str:
        return f"task {self.task!r}: dropped as a duplicate of {self.holder} (lock {self.digest})"


class LockLost(OnceMoreError):
    """This run does not hold its lock any more. ``args``: task name, digest, why."""

    @property
    def task(self) -> str:
        return self._said(0)

    @property
    def digest(self) -> str:
        return self._said(1)

    def __str__(self) -> str:
        return f"task {self.task!r}: lock {self.digest} was lost: {self._said(2)}"


class StoreUnavailable(OnceMoreError):
    """The lock store did not answer, or refused to act; ``__cause__`` is the client's own error."""


class ReservationError(OnceMoreError):
    """Something is wrong with a reservation, or its key; each of those below has the key, as JSON, for its first argument."""


class _OfKey(ReservationError):
    @property
    def key(self) -> str:
        return self._said(0)


class Busy(_OfKey):
    """Another attempt has the key. ``args``: key, seconds until its lease ends."""

    @property
    def retry_after(self) -> float:
        return float(self.args[1]) if len(self.args) > 1 else 0.0

    def __str__(self) -> str:
        return f"reservation {self.key}: another attempt has it, for {self.retry_after:.3g} s at most unless it extends its lease"


class AlreadyDone(_OfKey):
    """The effect was done before. ``args``: key, its result."""

    @property
    def result(self) -> Any:
        return self.args[1] if len(self.args) > 1 else None

    def __str__(self) -> str:
        return f"reservation {self.key}: it is done already"


class OutcomeUnknown(_OfKey):
    """Nobody knows whether the effect was done, and a person has to say. ``args``: key, why."""

    def __str__(self) -> str:
        return f"reservation {self.key}: nobody knows whether it was done ({self._said(1)}); find out, then resolve() it"


class PreviouslyFailed(_OfKey):
    """An earlier attempt failed with one of its ``final`` errors. ``args``: key, type of that error, its message."""

    @property
    def error(self) -> str:
        return self._said(1)

    @property
    def message(self) -> str:
        return self._said(2)

    def __str__(self) -> str:
        return f"reservation {self.key}: it failed for good: {self.error}: {self.message}"


class FingerprintMismatch(_OfKey):
    """The key stands for another payload. ``args``: key."""

    def __str__(self) -> str:
        return f"reservation {self.key}: an earlier call had the same key and another fingerprint; nothing was done"


class LostReservation(_OfKey):
    """This attempt has its key no longer; nothing of its completion was written. ``args``: key, why."""

    def __str__(self) -> str:
        return f"reservation {self.key}: this attempt has lost it ({self._said(1)}); nothing of its completion was written"


class OpenTransaction(_OfKey):
    """This thread has a transaction open on the reservations' database. ``args``: key."""

    def __str__(self) -> str:
        return (
            f"reservation {self.key}: this thread has a transaction open, and a rollback of it would erase the evidence "
            "of an effect that was done; call it after the commit"
        )
