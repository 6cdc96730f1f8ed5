"""``docs/matrix.md`` is what ``make matrix`` wrote of the rows and columns that the code has now."""

import re
from pathlib import Path

import pytest
from matrix.columns import COLUMNS
from matrix.page import BROKERS, OTHER_COLUMNS, OTHER_POOLS
from matrix.rows import ROWS

PAGE = Path(__file__).parents[2] / "docs" / "matrix.md"


def tables():
    """``(heads, {row name: cells})`` of each table, in order."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", PAGE.read_text(), re.M):
        heads, _, *lines = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines()]
        found.append((heads[2:], {line[1]: line[2:] for line in lines}))
    return found


def test_there_is_a_table_for_each_broker_with_every_column():
    prefork = [str(column) for column in COLUMNS]
    others = [f"{pool}, {column.ack}" for pool in OTHER_POOLS for column in OTHER_COLUMNS]
    assert [heads for heads, _ in tables()] == [prefork] * len(BROKERS) + [others] * len(BROKERS)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_every_row_of_the_code_has_a_result_or_a_reason_in_every_cell(row):
    for heads, lines in tables():
        assert len(lines[row.name]) == len(heads)
        for said in lines[row.name]:
            assert re.match(r"ok, \d runs?\b|— \w", said), said


def test_the_page_has_no_row_that_the_code_does_not_have():
    for _, lines in tables():
        assert list(lines) == [row.name for row in ROWS]


def test_the_page_says_of_which_commit_and_day_it_is():
    assert re.search(r"^Commit `[0-9a-f]{7,}`, \d{4}-\d\d-\d\d\. Celery 5\.\d+\.\d+", PAGE.read_text(), re.M)
