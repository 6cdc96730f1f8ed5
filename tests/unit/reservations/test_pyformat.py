"""SQL for Django's cursors."""

import re

import pytest

from celery_once_more.reservations.pyformat import pyformat
from celery_once_more.reservations.statements import CLOCKS, mark_guarded, statements


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a = :a AND b = :seen_b", "a = %(a)s AND b = %(seen_b)s"),
        ("VALUES (:a, :a)", "VALUES (%(a)s, %(a)s)"),
        ("a::text = :a::varchar", "a::text = %(a)s::varchar"),
        ("a % 2", "a %% 2"),
        ("':a' 'it''s :b' :c", "':a' 'it''s :b' %(c)s"),
        ("LIKE '%:a' AND b = :b", "LIKE '%%:a' AND b = %(b)s"),
    ],
)
def test_names_are_marked_and_what_looks_like_one_is_not(sql, expected):
    assert pyformat(sql) == expected


@pytest.mark.parametrize("dialect", CLOCKS)
def test_every_statement_has_the_same_names_afterwards(dialect):
    for sql in vars(statements(dialect)).values():
        names = re.findall(r"(?<!:):([a-z_]+)", sql)
        assert re.findall(r"%\(([a-z_]+)\)s", pyformat(sql)) == names
        assert pyformat(sql) % {name: f":{name}" for name in names} == sql


def test_the_guarded_mark_has_no_parameters():
    sql = mark_guarded("ab" * 20, '["a", ":b %"]', 0)
    assert pyformat(sql) == sql
