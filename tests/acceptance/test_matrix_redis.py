"""Every end of a call with Redis as the broker, each under one of the six columns; ``make matrix`` runs all of them."""

import pytest
from matrix import cells
from matrix.columns import COLUMNS


@pytest.fixture(scope="module")
def floor(redis_server):
    yield from cells.floor_of("Redis")


@pytest.mark.parametrize(("row", "column"), cells.turns(COLUMNS))
def test_the_five_claims_hold_after(floor, row, column):
    cells.run(floor, row, column)
