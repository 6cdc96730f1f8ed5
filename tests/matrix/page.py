"""The page that ``make matrix`` writes: what each cell said, under the commit and the date."""

from matrix.columns import COLUMNS, Column
from matrix.rows import ROWS

BROKERS, PREFORK, OTHER_POOLS = ("Redis", "RabbitMQ"), "prefork", ("threads", "gevent", "solo")
#: of the other pools; what a lock does does not depend on the pool, only the ends of a run do
OTHER_COLUMNS = tuple(Column("until_executed", ack) for ack in ("early", "late"))

PAGE = """# Every end of a call

Written by `make matrix` (`python tests/matrix/run.py`): each row ends a call in one way, under each lock, with early and
with late acknowledgement (`acks_late=True, reject_on_worker_lost=True`), in real workers, with a Redis for the locks that is
not the broker's. Numbers are those of the table in the [README](../README.md).

{environment}

A cell says how often the call ran, and that these five held:

* It ran as often as Celery and the broker delivered it, and never twice at once: a database table with one place per key refuses
  whoever enters beside a run that lives. (A worker that stood still for longer than its lease does run beside another: there the
  fencing token's database refuses its late write, and `current_lock.check()` raises `LockLost`.)
* Its lock was free in the time that the README promises: at once, with its lease, or with its queue lease.
* Nothing else was freed: a lock that nobody touched is as it was, to the byte.
* The stored result is what the last run left.
* Everybody who published the same call meanwhile was answered, and the next call was let in, and ran.

A dash: there is no such end; the reason stands behind it. A wrong clock is Python's, shifted in the whole worker from its first
module on. {differ}

{tables}
"""


def page(results, environment, versions):
    """``results``: ``(version, broker, pool, column, row name)`` -> what its cell says, by ``versions``, newest first."""
    cell = _cells(results, versions)
    tables = []
    for broker in BROKERS:
        columns = [(PREFORK, column) for column in COLUMNS]
        heads = [str(column) for column in COLUMNS]
        tables.append(f"## {broker} as the broker, pool prefork\n\n{_table(cell, broker, columns, heads)}")
    for broker in BROKERS:
        columns = [(pool, column) for pool in OTHER_POOLS for column in OTHER_COLUMNS]
        heads = [f"{pool}, {column.ack}" for pool, column in columns]
        tables.append(f"## {broker} as the broker, other pools, until_executed\n\n{_table(cell, broker, columns, heads)}")
    differ = "Where Celery's versions differ, the newest one stands first." if len(versions) > 1 else ""
    return PAGE.format(environment=environment, tables="\n\n".join(tables), differ=differ).replace(" \n", "\n")


def _cells(results, versions):
    def cell(*where):
        said = [results.get((version, *where), "not run") for version in versions]
        if len(set(said)) == 1:
            return said[0]
        return "; ".join([said[0], *(f"{version}: {text}" for version, text in zip(versions[1:], said[1:], strict=True))])

    return cell


def _table(cell, broker, columns, heads):
    lines = [["#", "end", *heads], ["---"] * (2 + len(columns))]
    lines += [[row.ends, row.name, *(cell(broker, pool, column, row.name) for pool, column in columns)] for row in ROWS]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
