"""What an error of a database's driver means: one table for all layers."""

from __future__ import annotations

from typing import Any

from celery_once_more.reservations.database import Trouble
from celery_once_more.reservations.row import TABLE

#: SQLSTATE of PostgreSQL; ``None`` is what its drivers give where no answer came
POSTGRESQL: dict[str | None, Trouble] = {
    "40001": "again", "40P01": "again", "55P03": "locked", "42P01": "no table", "23505": "duplicate",
    None: "lost", "08000": "lost", "08003": "lost", "08006": "lost", "25P03": "lost",
    "57P01": "lost", "57P02": "lost", "57P03": "lost", "57P05": "lost",
}  # fmt: skip
#: error number of MySQL and MariaDB, or of their drivers
MYSQL: dict[Any, Trouble] = {
    1213: "again", 1020: "again", 1205: "locked", 1146: "no table", 1062: "duplicate",
    0: "lost", 1053: "lost", 1927: "lost", 2002: "lost", 2003: "lost", 2006: "lost", 2013: "lost", 2055: "lost", 4031: "lost",
}  # fmt: skip
#: where SQLite has no number for it: what its message says
SQLITE: dict[str, Trouble] = {
    "is locked": "locked", f"no such table: {TABLE}": "no table", f"no such table: main.{TABLE}": "no table",
    "UNIQUE constraint failed": "duplicate",
}  # fmt: skip


def trouble_of(dialect: str, error: BaseException | None) -> Trouble:
    """Of an exception that psycopg, a driver of MySQL, or Python's sqlite3 raised."""
    if dialect == "sqlite":
        if getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY_SNAPSHOT":  # it has read what is old by now
            return "again"
        return next((trouble for words, trouble in SQLITE.items() if words in str(error)), "other")
    trouble = _postgresql(error) if dialect == "postgresql" else _mysql(error)
    return "other" if trouble == "no table" and TABLE not in str(error) else trouble


def _mysql(error: Any) -> Trouble:
    return MYSQL.get((getattr(error, "args", None) or (None,))[0], "other")


def _postgresql(error: Any) -> Trouble:
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)  # psycopg 3; psycopg2
    if code is None and "OperationalError" not in [kind.__name__ for kind in type(error).__mro__]:
        return "other"
    return POSTGRESQL.get(code, "other")
