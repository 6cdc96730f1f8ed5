"""Every error of this package, under one root.

Each one survives pickling and Celery's JSON results, which rebuild an exception from its ``args`` alone:
the attributes are the positional arguments, and the sentence is made when it is shown.
"""

from __future__ import annotations

from celery.exceptions import ImproperlyConfigured, TaskRevokedError


class OnceMoreError(Exception):
    """Something in celery-once-more went wrong."""


class ConfigurationError(OnceMoreError, ImproperlyConfigured):
    """An option of a task, or a setting, is wrong; the sentence names it and the nearest right word."""


class ArgumentsError(OnceMoreError, TypeError):
    """An argument has no stable JSON form, so the call has no digest. ``args``: task name, argument, reason."""

    @property
    def task(self) -> str:
        return str(self.args[0])

    @property
    def argument(self) -> str:
        return str(self.args[1])

    def __str__(self) -> str:
        task, argument, reason = self.args
        return f"task {task!r}: argument {argument} has no stable JSON form: {reason}"


class _Refused(OnceMoreError):
    """A call met a lock that another call holds. ``args``: task name, digest, task id of the holder."""

    @property
    def task(self) -> str:
        return str(self.args[0])

    @property
    def digest(self) -> str:
        return str(self.args[1])

    @property
    def holder(self) -> str:
        return str(self.args[2])


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
        return str(self.args[0])

    @property
    def digest(self) -> str:
        return str(self.args[1])

    def __str__(self) -> str:
        task, digest, why = self.args
        return f"task {task!r}: lock {digest} was lost: {why}"


class StoreUnavailable(OnceMoreError):
    """The lock store did not answer, or refused to act; ``__cause__`` is the client's own error."""
