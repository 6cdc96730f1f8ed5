"""Every end of a call with RabbitMQ as the broker, each under one of the six columns; ``make matrix`` runs all of them."""

import pytest
from matrix import cells
from matrix.columns import COLUMNS


@pytest.fixture(scope="module")
def floor(redis_server, rabbitmq):
    yield from cells.floor_of("RabbitMQ")


@pytest.mark.parametrize(("row", "column"), cells.turns(COLUMNS, start=1))
def test_the_five_claims_hold_after(floor, row, column):
    cells.run(floor, row, column)
