"""The table of reservations as SQLAlchemy knows it: for ``create_table`` and for Alembic.

A project whose migrations look at one ``MetaData`` calls ``reservation_table(Base.metadata)``; others add ``metadata`` to the
list that is their ``target_metadata``.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.dialects.mysql import MEDIUMTEXT

from celery_once_more.reservations.keys import MAX_LENGTH
from celery_once_more.reservations.row import TABLE

metadata = MetaData()


def reservation_table(metadata: MetaData) -> Table:
    """Times are microseconds since the epoch, on the database's clock."""
    if TABLE in metadata.tables:
        return metadata.tables[TABLE]
    return Table(
        TABLE,
        metadata,
        Column("dedup_key", String(40), primary_key=True),
        Column("label", String(MAX_LENGTH), nullable=False, comment="the key, as JSON"),
        Column("state", String(8), nullable=False, comment="running, unknown, free, done or failed"),
        Column("token", BigInteger, nullable=False, comment="grows with each attempt"),
        Column("attempt", String(32), nullable=False, comment="id of the last attempt"),
        Column("takeovers", Integer, nullable=False, comment="attempts before the last whose outcome nobody knows"),
        Column("since", BigInteger, nullable=False, comment="claim of the first attempt whose outcome may be unknown"),
        Column("lease_until", BigInteger, nullable=False, comment="of running"),
        Column("fingerprint", String(40), comment="hash of the payload"),
        Column("result", Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb"), comment="JSON; of failed: the error"),
        Column("created_at", BigInteger, nullable=False),
        Column("updated_at", BigInteger, nullable=False),
        Index("once_more_reservation_care", "state", "updated_at"),
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


table = reservation_table(metadata)
