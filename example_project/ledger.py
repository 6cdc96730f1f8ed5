"""The witness: a SQLite file to which tasks and their callers write what they do. It knows nothing of Celery or of locks."""

import os
import sqlite3
import time
from contextlib import closing
from typing import NamedTuple


class Row(NamedTuple):
    at: float
    task_id: str | None
    pid: int


class Ledger:
    def __init__(self, path):
        self.path = path
        self._run("CREATE TABLE IF NOT EXISTS ledger (at REAL, who TEXT, event TEXT, what TEXT, task_id TEXT, pid INTEGER)")

    def write(self, who, event, what, task_id=None, at=None):
        at = time.time() if at is None else at
        self._run("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?)", at, who, event, what, task_id, os.getpid())

    def read(self, who, event, what):
        """The rows, oldest first."""
        sql = "SELECT at, task_id, pid FROM ledger WHERE who = ? AND event = ? AND what = ? ORDER BY rowid"
        return [Row(*row) for row in self._run(sql, who, event, what)]

    def _run(self, sql, *values):
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as db:
            return db.execute(sql, values).fetchall()
