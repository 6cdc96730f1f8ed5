"""SQLAlchemy's layer, in the hands of the reservations' contract."""

from contextlib import contextmanager

from contract.reservations.backend import Backend
from contract.reservations.models import Line, written
from sqlalchemy import create_engine, event, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from celery_once_more.reservations import Reservations
from celery_once_more.reservations.row import TABLE


class SqlAlchemyBackend(Backend):
    """Its ``tx`` is a session."""

    layer = "sqlalchemy"
    levels = ("REPEATABLE READ", "SERIALIZABLE", "AUTOCOMMIT")
    Line = Line
    DatabaseError, IntegrityError = DBAPIError, IntegrityError

    def connect(self):
        how = {} if self.isolation is None else {"isolation_level": self.isolation}
        if self.hasty and self.name == "sqlite":
            how["connect_args"] = {"timeout": 0.2}
        if how or self.hasty:
            self.engine = create_engine(self.url, **how)
        if self.hasty and self.name == "mariadb":
            event.listen(self.engine, "connect", lambda c, _: c.cursor().execute("SET SESSION innodb_lock_wait_timeout = 1"))
        self.reservations = Reservations.sqlalchemy(self.engine)

    def forget_table(self):
        with self.engine.begin() as connection:
            connection.execute(text(f"DROP TABLE IF EXISTS {TABLE}"))

    def no_transactions(self):
        """What is none, though somebody may give it for one."""
        return [None, self.engine, self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")]

    @contextmanager
    def transaction(self, isolation=None):
        with Session(self.engine) as session, session.begin():
            if isolation is not None:
                session.connection(execution_options={"isolation_level": isolation})
            yield session

    def execute(self, tx, sql):
        tx.execute(text(sql))

    def write(self, tx, word):
        tx.execute(written.insert().values(word=word))

    def words_in(self, tx):
        return list(tx.scalars(select(written.c.word).order_by(written.c.id)))

    def watch(self, statement=lambda word: None, commit=lambda: None):
        event.listen(self.engine, "before_cursor_execute", lambda c, cu, sql, *_: statement(sql.split()[0]))
        event.listen(self.engine, "rollback", lambda _: statement("ROLLBACK"))
        event.listen(self.engine, "commit", lambda _: commit())
