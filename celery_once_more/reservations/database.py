"""What reservations ask of a database layer: SQLAlchemy is one, and each passes the same contract tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

#: ``again``: the transaction was the loser of a conflict, and can be repeated; ``locked``: it waited too long for another;
#: ``lost``: the connection broke, and nobody knows whether a commit took place; ``no table``; ``duplicate``: of a unique key
Trouble = Literal["again", "locked", "lost", "no table", "duplicate", "other"]


class Tx(Protocol):
    """A transaction. SQL has named parameters (``:name``), and may use some of those given."""

    def rows(self, sql: str, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """Execute; what it returned, and nothing where it returns no rows."""

    def count(self, sql: str, parameters: Mapping[str, Any]) -> int:
        """Execute an UPDATE or DELETE; the rows that its WHERE found."""

    def save(self, write: Callable[[Any], None]) -> None:
        """Let the caller write in this transaction; ``write`` is given what this layer's users know a transaction by."""


class Database(Protocol):
    #: ``sqlite``, ``postgresql`` or ``mysql`` (which MariaDB is as well)
    dialect: str

    @property
    def makes_table(self) -> str:
        """What makes the table, as people are told who have none."""

    def transaction(self, *, durable: bool = True) -> AbstractContextManager[Tx]:
        """A transaction of its own: committed at the end, rolled back by an exception.

        If it need not be ``durable``, a layer that has one connection for a thread makes it part of one that is open there.

        Raises:
            ReservationError: it has to be durable, and such a layer has one open.
        """

    def join(self, tx: Any) -> Tx:
        """The caller's transaction; ``None`` is the one that is open in this thread, where the layer knows it.

        Raises:
            ReservationError: it is not one that this layer knows, or none is open.
        """

    def has_open_transaction(self) -> bool:
        """Whether this thread has a transaction open, other than one that was committed or rolled back meanwhile."""

    def trouble(self, error: BaseException) -> Trouble:
        """What an exception means."""

    def insert_once(self, tx: Any, model: Any, values: Mapping[str, Any], on: Sequence[str]) -> tuple[Any, bool]:
        """A business row under its own unique index: it, or the one that is there; and whether it was made now."""

    def create_table(self) -> None:
        """Make the table, unless it is there."""
