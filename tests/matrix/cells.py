"""pytest's way into the matrix: a floor for as long as a test module lives, and a cell for each row, its column in turn."""

import pytest

from matrix.cell import Cell
from matrix.floor import Floor
from matrix.rows import ROWS


def turns(columns, *, start=0, pool="prefork"):
    """Each row that there is in this pool, with the next column: every column has its turn."""
    rows = [row for row in ROWS if not row.why_not(pool)]
    return [pytest.param(row, columns[(n + start) % len(columns)], id=row.name) for n, row in enumerate(rows)]


def floor_of(broker, pool="prefork"):
    """``yield from`` it in a fixture."""
    floor = Floor(broker, pool)
    yield floor
    floor.close()


def run(floor, row, column):
    """The five claims of one cell; in the worker of the cell before, where its row can do with that one."""
    cell = Cell(floor, row, column)
    try:
        cell.run()
    except BaseException:
        floor.reset("celery", cell.queue)
        raise
