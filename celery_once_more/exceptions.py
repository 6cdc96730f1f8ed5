"""Every error of this package, under one root.

Each one survives pickling and Celery's JSON results, which rebuild an exception from its ``args`` alone:
the attributes are the positional arguments, and the sentence is made when it is shown.
"""

from __future__ import annotations

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
