"""Every end of a call in the pool solo, with early and late acknowledgement in turn; ``make matrix`` has both brokers."""

import pytest
from matrix import cells
from matrix.page import OTHER_COLUMNS


@pytest.fixture(scope="module")
def floor(redis_server):
    yield from cells.floor_of("Redis", "solo")


@pytest.mark.parametrize(("row", "column"), cells.turns(OTHER_COLUMNS, pool="solo"))
def test_the_five_claims_hold_after(floor, row, column):
    cells.run(floor, row, column)
