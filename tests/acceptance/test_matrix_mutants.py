"""A cell of the matrix finds out when a promise is broken."""

from dataclasses import replace

import pytest
from matrix import cell, cells
from matrix.mutants import MUTANTS
from matrix.rows import BY_NAME


@pytest.fixture(scope="module")
def floor(redis_server):
    yield from cells.floor_of("Redis")


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_promise_is_found_out(floor, monkeypatch, name):
    monkeypatch.setattr(cell, "WITHIN", 5)  # what never comes is not waited for
    mutant = MUTANTS[name]
    row = replace(BY_NAME[mutant.row], env={"FLOOR_MUTANT": name})
    with pytest.raises(AssertionError, match=mutant.found):
        cells.run(floor, row, mutant.column)
