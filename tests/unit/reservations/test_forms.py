"""What is kept of payloads and results."""

from datetime import date
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_once_more.reservations import ReservationError
from celery_once_more.reservations.forms import MAX_RESULT, decode, encode, encode_error, fingerprint

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(JSON)
def test_a_result_comes_back_as_it_was(result):
    assert decode(encode(result)) == result


@given(JSON)
def test_a_stored_result_is_plain_ascii(result):
    assert encode(result).isascii()


def test_a_result_is_text_that_every_database_takes():
    assert encode("\x00 é \ud800 \U0001f600") == '"\\u0000 \\u00e9 \\ud800 \\ud83d\\ude00"'


def cyclic():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "result", [{1, 2}, b"x", object(), float("nan"), float("inf"), Decimal(1), UUID(int=1), date(2026, 1, 1), cyclic()],
    ids=lambda r: type(r).__name__,
)  # fmt: skip
def test_what_is_not_json_is_no_result(result):
    with pytest.raises(ReservationError, match="not JSON"):
        encode(result)


def test_a_result_has_a_greatest_length():
    assert len(encode("x" * (MAX_RESULT - 2))) == MAX_RESULT
    with pytest.raises(ReservationError, match=r"65537 bytes.*return an id"):
        encode("x" * (MAX_RESULT - 1))


def test_a_payload_is_compared_by_what_it_says():
    assert fingerprint({"a": 1, "b": [1, 2]}) == fingerprint({"b": (1, 2), "a": 1})
    others = [{"a": 1}, {"a": "1"}, {"a": 1.0}, {"a": True}, {}, [], "", 0, False, {"a": None}, Decimal("1.0"), "1.0"]
    assert len({fingerprint(one) for one in others}) == len(others)


def test_no_payload_says_nothing():
    assert fingerprint(None) is None


@given(JSON.filter(lambda value: value is not None))
def test_a_fingerprint_is_40_hexadecimal_digits(payload):
    assert len(fingerprint(payload)) == 40


def test_a_fingerprint_stays_the_same_from_version_to_version():
    assert fingerprint({"amount": 5}) == "6c1ae52fd37c5162734595bd0e8dafb2673555ea"


def test_what_has_no_stable_form_is_no_payload():
    with pytest.raises(ReservationError, match=r"fingerprint\['a'\] has no stable JSON form: set"):
        fingerprint({"a": {1}})


def test_of_an_error_its_type_and_the_beginning_of_its_message_are_kept():
    class Strange(Exception):
        def __str__(self):
            raise RuntimeError

    assert decode(encode_error(ValueError("x" * 5000))) == ["builtins.ValueError", "x" * 1000]
    assert decode(encode_error(Strange()))[1] == "?"
