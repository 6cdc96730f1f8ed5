"""A small shop's books in a database, on which the jobs of the crash-point tests work: orders, accounts, and two far sides."""

from sqlalchemy import Column, Integer, MetaData, String, Table, UniqueConstraint, insert, select, update

metadata = MetaData()
orders = Table("orders", metadata, Column("id", Integer, primary_key=True), Column("ref", Integer))
payments = Table("payments", metadata, Column("ref", Integer, primary_key=True), Column("state", String(20)),
                 Column("owner", String(40)))  # fmt: skip
once = Table("once", metadata, Column("id", Integer, primary_key=True), Column("ref", Integer), UniqueConstraint("ref"))
accounts = Table("accounts", metadata, Column("id", Integer, primary_key=True), Column("balance", Integer))

TABLES = (orders, payments, once, accounts)


class Books:
    """One database, a bank and a post office that outlive every process."""

    def __init__(self, engine, bank, post):
        self.engine, self.bank, self.post = engine, bank, post
        metadata.drop_all(engine)
        metadata.create_all(engine)

    def seed(self):
        with self.engine.begin() as tx:
            for table in TABLES:
                tx.execute(table.delete())
            tx.execute(insert(accounts).values(id=1, balance=100))
        self.bank.reset()
        self.post.reset()

    def look(self):
        with self.engine.connect() as tx:
            found = {table.name: sorted(tuple(row)[1:] for row in tx.execute(select(table))) for table in TABLES}
        return {**found, "charged": self.bank.effects, "mailed": self.post.effects}

    def begin(self):
        return self.engine.begin()

    def first(self, tx, table, ref):
        return tx.execute(select(table).where(table.c.ref == ref)).first()

    def set_balance(self, tx, value):
        tx.execute(update(accounts).where(accounts.c.id == 1).values(balance=value))
