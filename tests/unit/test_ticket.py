"""The proof of admission in the headers: it comes back as it went, and whatever is wrong with it, it is no ticket at all."""

import dataclasses
import json
import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu.utils.json import dumps, loads

from celery_once_more import ticket as tickets
from celery_once_more.lock_types import LOCK_TYPES
from celery_once_more.ticket import EXEMPT, HOP_BITS, SERIES_BITS, Ticket, assumed_series, is_exempt, new_run_id, new_series, read

DIGEST = "abcdefghijklmnop-_ABCD"
GOOD = Ticket(
    task="shop.settle", task_id="some id", digest=DIGEST, lock=LOCK_TYPES["until_executed"], series=5, hop=0, queue="celery"
)


def reads(header):
    return read(header, task="shop.settle", task_id="some id")


def changed(**fields):
    return {**GOOD.to_header(), **fields}


def without(name):
    return {key: value for key, value in GOOD.to_header().items() if key != name}


# there and back


@pytest.mark.parametrize("hop", [0, 1, (1 << HOP_BITS) - 1, 1 << HOP_BITS, (1 << 52) - 1])
@pytest.mark.parametrize("series", [0, 1, (1 << SERIES_BITS) - 1])
@pytest.mark.parametrize("queue", ["celery", None, "q\u00fc"])
def test_a_ticket_comes_back_as_it_went(series, hop, queue):
    ticket = dataclasses.replace(GOOD, series=series, hop=hop, queue=queue)
    for trip in (dict, lambda header: json.loads(json.dumps(header)), lambda header: loads(dumps(header))):
        assert reads(trip(ticket.to_header())) == ticket


def test_a_limit_travels_with_its_ticket():
    ticket = dataclasses.replace(GOOD, lock=dataclasses.replace(GOOD.lock, limit=3))
    assert reads(ticket.to_header()) == ticket


def test_the_header_of_version_1_never_changes():
    assert GOOD.to_header() == {
        "v": 1,
        "task": "shop.settle",
        "id": "some id",
        "digest": DIGEST,
        "lock": "until_executed",
        "limit": 1,
        "series": 5,
        "hop": 0,
        "queue": "celery",
    }
    assert EXEMPT == {"v": 1, "lock": None}
    assert (tickets.HEADER, tickets.RUN_HEADER) == ("once_more", "once_more_run")


def test_a_ticket_that_was_read_was_admitted():
    assert reads(GOOD.to_header()).admitted


def test_further_fields_of_a_later_minor_are_left_alone():
    assert reads(changed(stop=0, new="x")) == GOOD


def test_a_message_without_a_ticket_is_no_matter_for_a_warning(caplog):
    assert reads(None) is None
    assert caplog.records == []


# what is wrong with a ticket


WRONG = {
    "no mapping: text": "once_more",
    "no mapping: list": [1],
    "no mapping: number": 1,
    "no mapping: True": True,
    "no mapping: bytes": b"{}",
    "empty": {},
    **{f"without {name}": without(name) for name in GOOD.to_header()},
    "version 0": changed(v=0),
    "version 2": changed(v=2),
    "version in text": changed(v="1"),
    "version None": changed(v=None),
    "version list": changed(v=[1]),
    "for another task": changed(task="shop.other"),
    "for no task": changed(task=None),
    "for another id": changed(id="other id"),
    "for no id": changed(id=None),
    "for a list of ids": changed(id=["some id"]),
    "unknown lock": changed(lock="mutex"),
    "no lock": changed(lock=None),
    "lock list": changed(lock=["until_executed"]),
    "lock dict": changed(lock={}),
    "lock number": changed(lock=1),
    "short digest": changed(digest=DIGEST[:-1]),
    "long digest": changed(digest=DIGEST + "a"),
    "digest with a newline": changed(digest=DIGEST[:-1] + "\n"),
    "digest and a newline": changed(digest=DIGEST + "\n"),
    "digest that would leave its key": changed(digest="{00}:token:aaaaaaaaaaa"),
    "digest not ASCII": changed(digest="\u00e9" * 22),
    "digest bytes": changed(digest=DIGEST.encode()),
    "digest None": changed(digest=None),
    "digest number": changed(digest=22),
    "limit 0": changed(limit=0),
    "limit negative": changed(limit=-1),
    "limit huge": changed(limit=1 << 31),
    "limit float": changed(limit=1.0),
    "limit True": changed(limit=True),
    "limit text": changed(limit="1"),
    "series negative": changed(series=-1),
    "series huge": changed(series=1 << SERIES_BITS),
    "series text": changed(series="5"),
    "series float": changed(series=5.0),
    "series True": changed(series=True),
    "series None": changed(series=None),
    "series list": changed(series=[5]),
    "hop negative": changed(hop=-1),
    "hop beyond what Lua counts": changed(hop=1 << 53),
    "hop float": changed(hop=0.0),
    "hop text": changed(hop="0"),
    "hop None": changed(hop=None),
    "exempt, read as a ticket": EXEMPT,
}


@pytest.mark.parametrize("header", WRONG.values(), ids=WRONG.keys())
def test_a_damaged_forged_or_older_ticket_is_none_with_one_warning(header, caplog):
    assert reads(header) is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert re.match(
        r"task shop\.settle\[some id\]: its ticket is not used, the message counts as one without: .", record.getMessage()
    )


@pytest.mark.parametrize("name", ["task", "id", "lock", "digest", "v"])
def test_a_warning_is_a_line_however_long_the_forgery(name, caplog):
    assert reads(changed(**{name: "x" * 1_000_000})) is None
    assert len(caplog.records[0].getMessage()) < 500


@pytest.mark.parametrize("queue", [5, ["celery"], {}, True, b"celery"], ids=repr)
def test_a_queue_that_is_no_name_counts_as_none(queue):
    assert reads(changed(queue=queue)) == dataclasses.replace(GOOD, queue=None)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=5,
)


@given(ANYTHING)
def test_whatever_stands_in_the_header_reading_it_never_raises(header):
    assert reads(header) is None


@given(st.sampled_from(sorted(GOOD.to_header())), ANYTHING)
def test_whatever_stands_in_one_field_is_a_ticket_for_this_message_or_none(name, value):
    found = reads(changed(**{name: value}))
    assert found is None or (found.task, found.task_id) == ("shop.settle", "some id")


# a call without its lock


def test_an_exempt_header_is_known_again():
    assert is_exempt(EXEMPT)
    assert is_exempt(loads(dumps(EXEMPT)))


@pytest.mark.parametrize(
    "header", [None, {}, {"v": 1}, {"v": 2, "lock": None}, {"lock": None}, GOOD.to_header(), "x", []], ids=repr
)
def test_nothing_else_is_exempt(header):
    assert not is_exempt(header)


# who is who


def test_a_hop_changes_and_the_call_stays():
    later = GOOD.at_hop(3)
    assert (later.hop, later.series, later.digest) == (3, GOOD.series, GOOD.digest)
    assert GOOD.hop == 0


MESSAGES = st.tuples(
    st.integers(0, (1 << SERIES_BITS) - 1) | st.integers(0, 3),
    st.integers(0, 1 << 40) | st.integers(0, 3) | st.integers((1 << HOP_BITS) - 3, (1 << HOP_BITS) + 3),
)


def members(series, hop):
    ticket = dataclasses.replace(GOOD, series=series, hop=hop)
    return ticket.done_member, ticket.spent_member


@given(MESSAGES, MESSAGES)
def test_the_done_memory_tells_calls_and_messages_apart(a, b):
    (done_a, spent_a), (done_b, spent_b) = members(*a), members(*b)
    assert (done_a == done_b) == (a[0] == b[0])
    assert (spent_a == spent_b) == (a == b)
    assert done_a != spent_b


@given(MESSAGES)
def test_a_member_is_a_number_that_redis_packs_while_the_hop_fits(message):
    done, spent = members(*message)
    assert int(done) < 1 << 63
    assert message[1] + 1 >= 1 << HOP_BITS or int(spent) < 1 << 63


def test_the_hop_has_room_beyond_its_bits():
    last, beyond = (1 << HOP_BITS) - 2, (1 << HOP_BITS) - 1
    assert members(5, last)[1] == str((5 << HOP_BITS) + last + 1)
    assert members(5, beyond)[1] == f"5:{beyond}"
    assert members(5, beyond + 1)[1] == f"5:{beyond + 1}"
    assert members(5, beyond)[1] != members(6, 0)[0]


def test_a_new_series_fits_and_is_not_the_last_one():
    drawn = {new_series() for _ in range(1000)}
    assert len(drawn) == 1000
    assert all(0 <= series < 1 << SERIES_BITS for series in drawn)


def test_a_message_without_a_ticket_has_the_same_series_at_every_delivery():
    assert assumed_series("some id") == assumed_series("some id") == 3_589_641_259_391
    assert assumed_series("some id") != assumed_series("other id")


@pytest.mark.parametrize("task_id", ["", "\ud800", "x" * 100_000, "\u00e9", 5, None], ids=lambda x: repr(x)[:20])
def test_any_id_has_a_series(task_id):
    assert 0 <= assumed_series(task_id) < 1 << SERIES_BITS


def test_each_run_has_an_id_of_its_own():
    assert len({new_run_id() for _ in range(1000)}) == 1000


def test_a_ticket_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        GOOD.hop = 1


def test_only_what_was_not_let_in_yet_meets_a_strategy():
    """A retry of a run that was refused still does. One of a run that was let in, and a redelivered message, which may have run,
    are put off instead, whatever their lock.
    """

    def meets(ticket, redelivered=False):
        return ticket.meets_strategy(redelivered=redelivered)

    both = dataclasses.replace(GOOD, lock=LOCK_TYPES["until_and_while_executing"])
    ran = dataclasses.replace(both, ran=True)
    assert meets(both)
    assert meets(both.at_hop(2))
    assert meets(dataclasses.replace(GOOD, admitted=False))
    assert not meets(ran)
    assert not meets(both, redelivered=True)
    assert not meets(GOOD)
    assert meets(dataclasses.replace(both, known=False, admitted=False), redelivered=True), "nobody knows whose it is"
    assert reads(ran.to_header()) == ran
