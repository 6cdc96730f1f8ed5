"""A key names the same row in every process, and says nothing personal to a far side."""

import os
import subprocess
import sys
from datetime import date, datetime, timedelta, timezone
from enum import Enum, IntEnum
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.ids import plainly

from celery_once_more.reservations import ReservationError
from celery_once_more.reservations.keys import MAX_LENGTH, once_key, run_key, value_of

ID = UUID("12345678-1234-5678-1234-567812345678")
#: no longer than fits, with 12 characters for one beyond the basic plane
PART = st.text(min_size=1, max_size=4) | st.integers(-(10**9), 10**9)
KEYS = PART | st.lists(PART, min_size=1, max_size=4).map(tuple)


class Kind(str, Enum):
    CHARGE = "charge"


class Number(IntEnum):
    ONE = 1


#: what is the same key as what
SAME = [
    (("charge", 42), ["charge", 42]),
    (ID, str(ID)),
    (("order", date(2026, 12, 1)), ("order", "2026-12-01")),
    (datetime(2026, 12, 1, 12, tzinfo=timezone.utc), datetime(2026, 12, 1, 14, tzinfo=timezone(timedelta(hours=2)))),
    ((Kind.CHARGE, Number.ONE), ("charge", 1)),
]
#: what is not
OTHERS = [
    "42",
    42,
    ("42",),
    (42,),
    ("4", "2"),
    ("4", 2),
    "4,2",
    '["4", 2]',
    "é",
    "e",
    "E",
    " e",
    "e ",
    "Charge",
    "charge",
    ("charge", 0),
]
NO_KEYS = ["", None, 1.5, True, False, (), [], ("a", ""), ("a", None), ("a", 0.5), b"a", {"a"}, {"a": 1}, ("a", ("b",)), object()]


@pytest.mark.parametrize(("one", "other"), SAME, ids=plainly)
def test_what_names_the_same_is_one_key(one, other):
    assert run_key(one) == run_key(other)


def test_what_differs_is_another_key():
    assert len({run_key(value).dedup_key for value in OTHERS}) == len(OTHERS)
    assert len({run_key(value).dedup_key.upper() for value in OTHERS}) == len(OTHERS)  # whatever a collation thinks of case


@given(KEYS, KEYS)
def test_two_values_are_one_key_only_if_they_are_equal(one, other):
    assert (run_key(one) == run_key(other)) == (one == other)


@given(KEYS)
def test_a_key_can_be_read_back_and_given_again(value):
    key = run_key(value)
    assert value_of(key.text) == value
    assert run_key(value_of(key.text)) == key


@given(KEYS)
def test_a_deduplication_key_is_40_hexadecimal_digits(value):
    assert len(run_key(value).dedup_key) == 40
    assert set(run_key(value).dedup_key) <= set("0123456789abcdef")


def test_a_deduplication_key_says_nothing_of_its_key():
    assert "ada" not in run_key(("mail", "ada@example.com")).dedup_key
    assert run_key(("mail", "ada@example.com")).text == '["mail", "ada@example.com"]'


def test_a_deduplication_key_stays_the_same_from_version_to_version():
    """Rows and far sides remember it: a change here would do every effect again."""
    assert run_key(("charge", 42)).dedup_key == "73d6c1554a2c97a725f5c0f56bc07e80aaaa7126"
    assert once_key(("charge", 42)).dedup_key == "dd29ffbd7f3637455ae68da18c3c31ba99a10acd"


def test_a_deduplication_key_is_the_same_in_every_process():
    program = "from celery_once_more.reservations.keys import run_key; print(run_key(('charge', 42, 'é')).dedup_key)"
    told = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("0", "1")
    }  # fmt: skip
    assert told == {run_key(("charge", 42, "é")).dedup_key}


def test_a_marker_and_a_run_are_two_rows():
    assert once_key("a").dedup_key != run_key("a").dedup_key
    assert once_key("a").text == run_key("a").text


@pytest.mark.parametrize("value", NO_KEYS, ids=plainly)
def test_what_is_no_key_is_refused(value):
    with pytest.raises(ReservationError, match="key"):
        run_key(value)


def test_a_key_has_a_greatest_length_and_the_error_says_what_to_do():
    assert len(run_key("x" * (MAX_LENGTH - 2)).text) == MAX_LENGTH
    for value in ("x" * (MAX_LENGTH - 1), "é" * 50, ("a",) * 60, 10**5000, -(10**300)):
        with pytest.raises(ReservationError, match=r"at most 255 characters.*put an id, or a hash"):
            run_key(value)
