"""What a user's ``state`` may return, and what is refused with advice."""

import dataclasses
import datetime
import decimal
import enum
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import text

from celery_once_more.testing import CrashTestError, crash_point


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Order:
    ref: object


class Array:
    """Compares as an array does: element by element."""

    def __init__(self, *values):
        self.values = values

    def __eq__(self, other):
        return Array(*(one == two for one, two in zip(self.values, other.values, strict=True)))

    def __bool__(self):
        raise ValueError("the truth value of an array is ambiguous")


@pytest.fixture
def check(app, crash_points):
    @app.task(acks_late=True, reject_on_worker_lost=True)
    def job():
        crash_point("here")

    return lambda state: crash_points.check(job, state=state)


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        frozenset({"a"}),
        decimal.Decimal("9.90"),
        datetime.datetime(2020, 1, 1),
        uuid.UUID(int=7),
        Path("x"),
        b"x",
        None,
        Colour.RED,
        {"colour": [Colour.RED], "class": Order},
        Order(ref=1),
        SimpleNamespace(a=1),
    ],
    ids=repr,
)
def test_plain_data_is_compared(check, value):
    assert check(lambda: value).ok


def test_rows_are_plain_data(check, engine):
    def state():
        with engine.connect() as tx:
            return tx.execute(text("SELECT 1, 'a'")).all()

    assert check(state).ok


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (lambda: Array(1, 2), "cannot be compared (the truth value of an array is ambiguous)"),
        (lambda: {"a": [Array(1, 2)]}, "tolist()"),
        (lambda: [Order(ref=object())], "does not equal a copy of itself ([Order(ref="),
        (lambda: (one for one in [1]), "a generator, which equals only itself"),
        (lambda: {"a": 1}.keys(), "cannot be copied"),
    ],
    ids=["array", "array inside", "object inside", "generator", "keys"],
)
def test_what_cannot_be_compared_is_refused_with_advice(check, state, told):
    with pytest.raises(CrashTestError) as refused:
        check(state)
    assert told in str(refused.value)
    assert "return plain data" in str(refused.value)


@pytest.mark.parametrize("value", [float("nan"), decimal.Decimal("nan"), decimal.Decimal("snan"), {"rows": [(1, float("nan"))]}])
def test_what_does_not_equal_itself_is_refused(check, value):
    with pytest.raises(CrashTestError, match=r"state returned (?i:s?nan), which equals nothing"):
        check(lambda: value)
