"""What the reservations' contract asks of a database layer.

What stands in the tables is seen, and locked, through an engine beside the layer: another program's.
"""

from contract.reservations.models import lines, mapping, written
from sqlalchemy import create_engine, event, func, select, text
from sqlalchemy.engine import make_url

from celery_once_more.reservations.row import TABLE


class Backend:
    """``name`` is of the database; ``layer`` of what the reservations use it through."""

    def __init__(self, name, url, *, hasty=False, isolation=None):
        self.name, self.url = name, make_url(url)
        #: it waits for a lock for one second or less
        self.hasty = hasty
        #: of every transaction, unless it says so itself
        self.isolation = isolation
        self.engine = create_engine(self.url)
        if name == "sqlite":
            event.listen(self.engine, "connect", lambda connection, _: connection.execute("PRAGMA journal_mode=WAL"))
        self.connect()

    def again(self, *, port=None, **how):
        """The same database over connections of its own, as another process or program has it."""
        return type(self)(self.name, self.url if port is None else self.url.set(port=port, host="127.0.0.1"), **how)

    def make(self):
        self.reservations.create_table()
        mapping.metadata.create_all(self.engine)
        return self

    def drop(self):
        self.forget_table()
        mapping.metadata.drop_all(self.engine)
        self.close()

    def close(self):
        self.engine.dispose()

    def end_thread(self):
        """What a thread does at its end."""

    def clear(self):
        with self.engine.begin() as connection:
            for name in (TABLE, written.name):
                connection.execute(text(f"DELETE FROM {name}"))

    def unwrite(self, word):
        with self.engine.begin() as connection:
            connection.execute(written.delete().where(written.c.word == word))

    def words(self, tx=None):
        """What was written; with ``tx`` as that transaction sees it."""
        if tx is not None:
            return self.words_in(tx)
        with self.engine.connect() as connection:
            return list(connection.scalars(select(written.c.word).order_by(written.c.id)))

    def count_lines(self):
        with self.engine.connect() as connection:
            return connection.scalar(select(func.count()).select_from(lines))

    def rows(self):
        """Every reservation as a dict, oldest first."""
        with self.engine.connect() as connection:
            return [dict(row) for row in connection.execute(text(f"SELECT * FROM {TABLE} ORDER BY created_at")).mappings()]

    def row(self):
        (row,) = self.rows()
        return row

    def watch(self, statement=lambda word: None, commit=lambda: None):
        """``statement(its first word)`` and ``commit()`` are called before each is sent; BEGIN is none."""
        raise NotImplementedError

    def lock_the_row(self):
        """A transaction that holds the row, or all of SQLite, until it is closed."""
        connection = create_engine(self.url).connect()
        if self.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.execute(text(f"SELECT * FROM {TABLE} FOR UPDATE"))
        return connection
