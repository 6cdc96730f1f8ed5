"""For Django (4.2 or later): unique tasks that are published when the transaction commits.

In ``INSTALLED_APPS`` it is the app of the table that ``Reservations.django()`` writes: its migration, and its place in the admin.
"""

from __future__ import annotations

from typing import Any

from celery.contrib.django.task import DjangoTask
from django.db import transaction

from celery_once_more import on_commit
from celery_once_more.task import UniqueTask as Unique

__all__ = ["UniqueTask"]


class UniqueTask(Unique):
    """A unique task with the methods of Celery's ``DjangoTask``, which it may be mixed with in either order.

    The lock is taken and the message sent when the outermost transaction commits; on a rollback, also of a savepoint
    around the call, nothing happens. Without a transaction both are done at once.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("delay_on_commit", "apply_async_on_commit"):
            # Celery's class came first; ours cannot inherit from it, or that order would be none
            if getattr(cls, name) is getattr(DjangoTask, name):
                setattr(cls, name, getattr(UniqueTask, name))

    def delay_on_commit(self, *args: Any, **kwargs: Any) -> None:
        """``apply_async_on_commit`` with the task's arguments alone, in the default database."""
        self.apply_async_on_commit(args, kwargs)

    def apply_async_on_commit(self, args: Any = None, kwargs: Any = None, *, using: str | None = None, **options: Any) -> None:
        """``apply_async`` when the transaction of the database ``using`` commits (``None``: the default database).

        A ``countdown`` begins at the commit. What fails there is logged, and never raised.

        Raises:
            ConfigurationError: an option given with the call, or a setting of the lock store, is wrong.
            ArgumentsError: an argument that counts has no stable JSON form.
            TypeError: the task does not take these arguments, or one of them cannot be copied.
            django.db.transaction.TransactionManagementError: autocommit is off, and this is no ``atomic`` block.
        """
        transaction.on_commit(on_commit.prepare(self, args, kwargs, options), using=using)
