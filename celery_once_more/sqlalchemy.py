"""For SQLAlchemy (2.0 or later): tasks that are published when a session's transaction commits.

A session tells of the commit of a savepoint as it does of its own, and of neither when a savepoint is rolled back with
the one around it. So each call is kept with the transaction it was made in: one that ends after a commit hands its calls
to the transaction around it, or publishes them if there is none; one that ends in any other way drops them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from celery import Task
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from celery_once_more import on_commit
from celery_once_more.task import UniqueTask as Unique

__all__ = ["UniqueTask", "apply_async_on_commit", "delay_on_commit"]

AnySession = Session | scoped_session[Any] | AsyncSession | async_scoped_session[Any]

#: of ``Session.info``, which lives and ends with the session
_KEY = "celery_once_more.on_commit"


@dataclass
class _Waiting:
    #: in the order of the calls: the transaction or savepoint of each, and what publishes it
    calls: list[tuple[SessionTransaction, Callable[[], None]]] = field(default_factory=list)
    #: has been committed, and is about to end
    committed: SessionTransaction | None = None


def delay_on_commit(session: AnySession, task: Task, /, *args: Any, **kwargs: Any) -> None:
    """``apply_async_on_commit`` with the task's arguments alone."""
    apply_async_on_commit(session, task, args, kwargs)


def apply_async_on_commit(session: AnySession, task: Task, args: Any = None, kwargs: Any = None, **options: Any) -> None:
    """``task.apply_async`` when the session's outermost transaction has committed and its connection is given back.

    On a rollback, also of a savepoint around the call, and when the session is closed without a commit, nothing happens.
    Like any use of a session this begins a transaction where there is none; with ``autobegin=False`` the call is then
    published at once. A transaction that a connection holds around the session's is not seen.

    A ``countdown`` begins at the commit. What fails there is logged, and never raised.

    Raises:
        ConfigurationError: an option given with the call, or a setting of the lock store, is wrong.
        ArgumentsError: an argument that counts has no stable JSON form.
        TypeError: the task does not take these arguments, or one of them cannot be copied.
    """
    publish = on_commit.prepare(task, args, kwargs, options)
    plain = _plain(session)
    if not plain.in_transaction() and plain.autobegin:
        plain.begin()
    inside = _innermost(plain)
    if inside is None:
        publish()
    else:
        _waiting(plain).calls.append((inside, publish))


class UniqueTask(Unique):
    """A unique task that can be published with a session's transaction."""

    def delay_on_commit(self, session: AnySession, /, *args: Any, **kwargs: Any) -> None:
        """As the function of this name."""
        apply_async_on_commit(session, self, args, kwargs)

    def apply_async_on_commit(self, session: AnySession, args: Any = None, kwargs: Any = None, **options: Any) -> None:
        """As the function of this name."""
        apply_async_on_commit(session, self, args, kwargs, **options)


def _plain(session: AnySession) -> Session:
    one: Session | AsyncSession = session() if isinstance(session, (scoped_session, async_scoped_session)) else session
    return one.sync_session if isinstance(one, AsyncSession) else one


def _innermost(session: Session) -> SessionTransaction | None:
    return session.get_nested_transaction() or session.get_transaction()


def _waiting(session: Session) -> _Waiting:
    found: _Waiting | None = session.info.get(_KEY)
    if found is None:
        found = session.info[_KEY] = _Waiting()
        event.listen(session, "after_commit", _note_commit)
        event.listen(session, "after_transaction_end", _settle)
    return found


def _note_commit(session: Session) -> None:
    _waiting(session).committed = _innermost(session)


def _settle(session: Session, ended: SessionTransaction) -> None:
    """Told also of what a flush begins and ends; no call is kept with that."""
    waiting = _waiting(session)
    committed, waiting.committed = waiting.committed is ended, None
    if committed and ended.nested:
        around = _innermost(session)
        assert around is not None
        waiting.calls = [(around if inside is ended else inside, publish) for inside, publish in waiting.calls]
        return
    due = [publish for inside, publish in waiting.calls if inside is ended and committed]
    waiting.calls = [call for call in waiting.calls if call[0] is not ended]
    for publish in due:
        publish()
