"""The witness of the matrix: a database table whose constraint refuses that two runs of one key are inside at once.

It knows nothing of the package, and needs no service: SQLite in a file. Who was killed cannot leave; so whoever enters takes the
place of a process that is dead. A place whose process lives is an overlap, and is noted as one.
"""

import os
import sqlite3
import time
from contextlib import closing, contextmanager

from support.witness import alive

#: seconds after which a run that waits at a gate gives up, so that a broken cell leaves nothing behind for long
GIVE_UP = 120

TABLES = """
CREATE TABLE runs (id INTEGER PRIMARY KEY, key TEXT, number INTEGER, task_id TEXT, nth INTEGER, pid INTEGER, token INTEGER,
                   how TEXT DEFAULT 'inside', lost TEXT);
CREATE TABLE inside (key TEXT PRIMARY KEY, number INTEGER, pid INTEGER);
CREATE TABLE overlaps (key TEXT, number INTEGER, beside INTEGER);
CREATE TABLE effects (key TEXT PRIMARY KEY, token INTEGER, number INTEGER);
CREATE TABLE refused (key TEXT, number INTEGER);
CREATE TABLE gates (name TEXT PRIMARY KEY);
"""
WRITE = """
INSERT INTO effects VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET token = excluded.token, number = excluded.number WHERE excluded.token >= token
"""


class Book:
    def __init__(self, path):
        self.path = str(path)

    def make(self):
        """An empty one."""
        with self._open() as db:
            for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                db.execute(f"DROP TABLE {table}")
            db.execute("PRAGMA journal_mode=WAL")
            db.executescript(TABLES)
        # whoever closes the last connection locks the file for a moment, in which a process may be frozen: let it never be one
        self._open_for_good = sqlite3.connect(self.path)
        self._open_for_good.execute("SELECT 1 FROM runs").fetchall()
        return self

    @contextmanager
    def _open(self):
        with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as db:
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA synchronous=OFF")
            yield db

    @contextmanager
    def _act(self):
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")

    # -- what a run does --

    def enter(self, key, task_id, token):
        """``(number, nth)``: which run of this key it is, and which of this task id; both are counted from 1.

        Who is seen inside has written, so that from here on an older run's write comes too late.
        """
        with self._act() as db:
            (number,) = db.execute("SELECT COUNT(*) + 1 FROM runs WHERE key = ?", (key,)).fetchone()
            (nth,) = db.execute("SELECT COUNT(*) + 1 FROM runs WHERE task_id = ?", (task_id,)).fetchone()
            db.execute("INSERT INTO runs (key, number, task_id, nth, pid, token) VALUES (?, ?, ?, ?, ?, ?)",
                       (key, number, task_id, nth, os.getpid(), token))  # fmt: skip
            try:
                db.execute("INSERT INTO inside VALUES (?, ?, ?)", (key, number, os.getpid()))
            except sqlite3.IntegrityError:
                (beside, pid) = db.execute("SELECT number, pid FROM inside WHERE key = ?", (key,)).fetchone()
                if alive(pid):
                    db.execute("INSERT INTO overlaps VALUES (?, ?, ?)", (key, number, beside))
                db.execute("UPDATE inside SET number = ?, pid = ? WHERE key = ?", (number, os.getpid(), key))
            self._write(db, key, number, token)
        return number, nth

    def leave(self, key, number, how):
        with self._act() as db:
            db.execute("DELETE FROM inside WHERE key = ? AND number = ?", (key, number))
            db.execute("UPDATE runs SET how = ? WHERE key = ? AND number = ?", (how, key, number))

    def say_lost(self, key, number, why):
        with self._act() as db:
            db.execute("UPDATE runs SET lost = ? WHERE key = ? AND number = ?", (why, key, number))

    def write(self, key, number, token):
        """The side effect, behind the fence: a token that is smaller than the last one's is refused."""
        with self._act() as db:
            self._write(db, key, number, token)

    def _write(self, db, key, number, token):
        if not db.execute(WRITE, (key, token, number)).rowcount:
            db.execute("INSERT INTO refused VALUES (?, ?)", (key, number))

    def wait(self, gate):
        deadline = time.monotonic() + GIVE_UP
        while not self._rows("SELECT 1 FROM gates WHERE name IN (?, '*')", gate):
            if time.monotonic() > deadline:
                raise AssertionError(f"gate {gate} was never opened")
            time.sleep(0.02)  # in small steps, so that a signal that raises in Python is met soon

    # -- what a cell asks --

    def open_gate(self, *names):
        with self._act() as db:
            db.executemany("INSERT OR IGNORE INTO gates VALUES (?)", [(name,) for name in names])

    def runs(self, **of):
        """Of a ``key``, a ``task_id``; oldest first."""
        where = " AND ".join(f"{name} = ?" for name in of)
        return self._rows(f"SELECT * FROM runs WHERE {where} ORDER BY id", *of.values())

    def inside(self, key):
        return [row for row in self._rows("SELECT * FROM inside WHERE key = ?", key) if alive(row["pid"])]

    def overlaps(self, key):
        return self._rows("SELECT * FROM overlaps WHERE key = ?", key)

    def effect(self, key):
        """The number of the run whose write stands, or ``None``."""
        return next((row["number"] for row in self._rows("SELECT number FROM effects WHERE key = ?", key)), None)

    def refused(self, key):
        return [row["number"] for row in self._rows("SELECT number FROM refused WHERE key = ?", key)]

    def _rows(self, query, *values):
        with self._open() as db:
            return [dict(row) for row in db.execute(query, values)]
