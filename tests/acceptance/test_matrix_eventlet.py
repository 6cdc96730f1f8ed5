"""A smoke test of the pool eventlet, where it is installed: what it shares with gevent is tested there."""

import pytest
from matrix import cells
from matrix.page import OTHER_COLUMNS
from matrix.rows import BY_NAME


@pytest.fixture(scope="module")
def floor(redis_server):
    pytest.importorskip("eventlet", reason="eventlet is not one of the tests' packages")
    yield from cells.floor_of("Redis", "eventlet")


@pytest.mark.parametrize("column", OTHER_COLUMNS, ids=str)
@pytest.mark.parametrize("row", ["success", "failure", "retry", "revoked before its start", "SIGKILL of the main process"])
def test_the_five_claims_hold_after(floor, row, column):
    cells.run(floor, BY_NAME[row], column)
