"""A table ``orders`` in SQLAlchemy, on SQLite and on PostgreSQL."""

from sqlalchemy import create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True)


def url_of(request, tmp_path, kind, *, name="orders", asynchronous=False):
    if kind == "sqlite":
        return f"sqlite{'+aiosqlite' if asynchronous else ''}:///{tmp_path}/{name}.sqlite3"
    at = request.getfixturevalue("postgres_server").where()
    return f"postgresql+psycopg://{at['user']}@{at['host']}:{at['port']}/{at['dbname']}"


def begin_by_ourselves(engine):
    """Python's SQLite driver begins a transaction too late for savepoints."""

    @event.listens_for(engine, "connect")
    def leave_it(connection, _):
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection):
        connection.exec_driver_sql("BEGIN")


def make_engine(url, **options):
    engine = create_engine(url, **options)
    if url.startswith("sqlite"):
        begin_by_ourselves(engine)
    return engine
