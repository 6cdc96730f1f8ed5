"""The identity of a lock: which calls are one call, in every process and every version of this package."""

import hashlib
import inspect
import json
import os
import subprocess
import sys
import uuid
from base64 import urlsafe_b64encode
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kombu.utils.json import dumps, loads
from unit import digest_corpus as corpus

from celery_once_more import ArgumentsError
from celery_once_more.digest import UnstableArgument, bind, canonical, digest

quick = settings(max_examples=200, deadline=None)


def each(rows):
    return pytest.mark.parametrize("row", rows, ids=[row[0] for row in rows])


def of(arguments, scope="shop.settle", queue="celery"):
    return digest(scope=scope, queue=queue, arguments=canonical(arguments))


# the corpus


def test_the_corpus_is_no_smaller_than_it_was():
    assert len(corpus.EQUAL) + len(corpus.DIFFERENT) >= 110
    assert len(corpus.REFUSED) >= 40


@each(corpus.EQUAL)
def test_one_call_has_one_digest(row):
    _, a, b = row
    assert corpus.digest_of(a) == corpus.digest_of(b)


@each(corpus.DIFFERENT)
def test_two_calls_have_two_digests(row):
    _, a, b = row
    assert corpus.digest_of(a) != corpus.digest_of(b)


@each(corpus.REFUSED)
def test_what_has_no_stable_json_form_is_refused_with_the_argument_named(row):
    _, call, argument, reason = row
    with pytest.raises(ArgumentsError) as caught:
        corpus.digest_of(call)
    assert caught.value.task == call[0].name
    assert caught.value.argument == argument
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 400, "a line that people can read"


@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_every_process_computes_the_same_digests(seed):
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run(
        [sys.executable, corpus.__file__], env=env, capture_output=True, text=True, check=True, timeout=60, cwd=Path.home()
    )
    here = [corpus.digest_of(call) for _, *pair in corpus.EQUAL + corpus.DIFFERENT for call in pair]
    assert told.stdout.split() == here


# the format: these digests are in brokers and stores of running deployments; a change of any is a new VERSION

GOLDEN = [
    ("smallest", {}, '[1,"t",null,{}]', "vY0-mrifrblV2m62_5Qvag"),
    ("a webhook", {"event_id": "evt_123", "payload": None},
     '[1,"shop.settle","celery",{"event_id":"evt_123","payload":null}]', "EbossK6bQBpsh6HLl6TiSg"),
    ("sorted, no spaces", {"b": [1, (2, 3)], "a": {"d": 1, "c": 2}},
     '[1,"t","q",{"a":{"c":2,"d":1},"b":[1,[2,3]]}]', "y8Grubq5zq_aoKkTbVNYtQ"),
    ("scalars", {"x": [None, True, False, 0, -1, 1.0, -0.0, 1e100, 0.1]},
     '[1,"t","q",{"x":[null,true,false,0,-1,1.0,-0.0,1e+100,0.1]}]', "RW-0YKb-5gboguXByvCYfA"),
    ("large number", {"x": 2**64}, '[1,"t","q",{"x":18446744073709551616}]', "7cDA3lZU4UneaiPyzCtQmw"),
    ("not ASCII", {"x": "\u20ac \U0001f600 \ud800"},
     '[1,"t\\u00e4sk","q\\u00fc",{"x":"\\u20ac \\ud83d\\ude00 \\ud800"}]', "bCcVWP_GlBcIWELHaCFJ0w"),
    ("escapes", {"x": "\"\\/\n\t\b\f\r\0\x7f"},
     '[1,"t","q",{"x":"\\"\\\\/\\n\\t\\b\\f\\r\\u0000\\u007f"}]', "6bJBYwgX4eflCOlSHJnPkA"),
    ("keys", {"x": {1: 1, None: 2, 1.5: 3}}, '[1,"t","q",{"x":{"1":1,"1.5":3,"null":2}}]', "8PM331kYc_LHxaQfDEDbrA"),
    ("Decimal", {"x": Decimal("1.50")},
     '[1,"t","q",{"x":{"__type__":"decimal","__value__":"1.50"}}]', "PwRfLbwTA04JIvmgkDmWog"),
    ("datetime", {"x": datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=-3)))},
     '[1,"t","q",{"x":{"__type__":"datetime","__value__":"2024-02-29T01:02:03.000004-03:00"}}]', "kIXpDNwRM8bINLUKbvIfCA"),
    ("date", {"x": date(2024, 2, 29)},
     '[1,"t","q",{"x":{"__type__":"date","__value__":"2024-02-29"}}]', "1VPBeoFhSNPHOFkvCa_OKQ"),
    ("time", {"x": time(1, 2, 3)}, '[1,"t","q",{"x":{"__type__":"time","__value__":"01:02:03"}}]', "20g58ZABvGqAtXLLgKrbTQ"),
    ("UUID", {"x": uuid.UUID(int=255)},
     '[1,"t","q",{"x":{"__type__":"uuid","__value__":{"hex":"000000000000000000000000000000ff"}}}]', "7RCwVFpMIYp5FbTsbCSL9A"),
    ("bytes that are text", {"x": b"ab"}, '[1,"t","q",{"x":{"__type__":"bytes","__value__":"ab"}}]', "OwbiYxiX0_IZ3fn_AP3MJg"),
    ("bytes that are none", {"x": b"\xff"},
     '[1,"t","q",{"x":{"__type__":"base64","__value__":"/w=="}}]', "nYLxC91OgOymVawQGkA_kQ"),
    ("what a callable chose", "evt_123", '[1,"t","q","evt_123"]', "9E-iyPz5TJpvVrazOPAebA"),
]  # fmt: skip


@each(GOLDEN)
def test_format_version_1_never_changes(row):
    _, arguments, text, pinned = row
    _, scope, queue, _ = json.loads(text)
    hashed = hashlib.blake2b(text.encode("ascii"), digest_size=16).digest()
    assert urlsafe_b64encode(hashed).decode().rstrip("=") == pinned, "the table itself"
    assert of(arguments, scope, queue) == pinned


GOLDEN_CALLS = [
    ("default spelled out", corpus.call(corpus.two, 1), '[1,"two","celery",{"x":1,"y":2}]'),
    ("bound task", corpus.call(corpus.own, 1), '[1,"own","celery",{"x":1,"y":2}]'),
    ("positions", corpus.call(corpus.star, 1, 2), '[1,"star","celery",{"args":[1,2]}]'),
    ("keywords", corpus.call(corpus.star, 1, b=2, a=3), '[1,"star","celery",{"**":{"a":3,"b":2},"args":[1]}]'),
    ("position and keyword of one name", corpus.call(corpus.first, 1, x=2), '[1,"first","celery",{"**":{"x":2},"x":1}]'),
]


@each(GOLDEN_CALLS)
def test_how_a_call_is_laid_out_never_changes(row):
    _, call, text = row
    hashed = hashlib.blake2b(text.encode("ascii"), digest_size=16).digest()
    assert corpus.digest_of(call) == urlsafe_b64encode(hashed).decode().rstrip("=")


def test_a_digest_is_22_characters_that_need_no_quoting():
    assert {len(of(n)) for n in range(200)} == {22}
    assert set("".join(of(n) for n in range(200))) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_digests_of_many_calls_differ():
    assert len({of(n) for n in range(10_000)}) == 10_000


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"scope": "a.f"}, {"scope": "b.f"}),
        ({"queue": "celery"}, {"queue": "other"}),
        ({"queue": None}, {"queue": "null"}),
        ({"queue": None}, {"queue": ""}),
        ({"scope": "a", "queue": "b"}, {"scope": "b", "queue": "a"}),
        ({"scope": 'a","b'}, {"scope": "a", "queue": "b"}),
    ],
    ids=str,
)
def test_scope_and_queue_are_part_of_the_identity(a, b):
    assert of({"x": 1}, **a) != of({"x": 1}, **b)


# what is canonical

NUMBERS = st.one_of(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([0, 1, -1, 0.0, -0.0, 1.0, 2**53])
)
#: no pair of surrogates, which JSON cannot tell from the character that they spell
TEXTS = st.one_of(
    st.text(max_size=6),
    st.text(alphabet="\"\\,:[]{}'\u2028\udcff\0 1", max_size=4),
    st.sampled_from(["", "0", "1", "true", "null", "1.0", "a"]),
)
PLAIN = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
TYPED = st.one_of(
    st.decimals(allow_nan=True),
    st.datetimes(timezones=st.one_of(st.none(), st.just(timezone.utc), st.just(timezone(timedelta(hours=5, minutes=45))))),
    st.dates(),
    st.times(),
    st.uuids(),
    st.binary(max_size=6),
)
KEYS = st.one_of(TEXTS, st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False))


def nested(leaves):
    def around(inside):
        lists = st.lists(inside, max_size=3)
        return st.one_of(lists, lists.map(tuple), st.dictionaries(KEYS, inside, max_size=3))

    return st.recursive(leaves, around, max_leaves=8)


def canonical_or_reject(value):
    try:
        return canonical(value)
    except UnstableArgument as exc:
        assume("two of its keys" not in str(exc))
        raise


def strict(value):
    """Equal exactly when two values are of one type and equal, all the way down; written without JSON."""
    if isinstance(value, dict):
        return "dict", frozenset((key, strict(item)) for key, item in value.items())
    if isinstance(value, list):
        return "list", tuple(strict(item) for item in value)
    if isinstance(value, float):
        return "float", value.hex()
    return type(value).__name__, value


@quick
@given(nested(PLAIN), nested(PLAIN))
def test_canonical_arguments_that_differ_never_share_a_digest(a, b):
    a, b = canonical_or_reject(a), canonical_or_reject(b)
    assert (digest(scope="t", queue="q", arguments=a) == digest(scope="t", queue="q", arguments=b)) == (strict(a) == strict(b))


@quick
@given(nested(PLAIN | TYPED))
def test_a_trip_through_kombus_json_leaves_the_digest_as_it_is(value):
    before = canonical_or_reject(value)
    after = canonical(loads(dumps(value)))
    assert digest(scope="t", queue="q", arguments=before) == digest(scope="t", queue="q", arguments=after)


@quick
@given(nested(PLAIN | TYPED))
def test_what_is_canonical_is_what_kombu_sends_and_stays_canonical(value):
    plain = canonical_or_reject(value)
    assert strict(plain) == strict(json.loads(dumps(value)))
    assert strict(canonical(plain)) == strict(plain)


@quick
@given(st.dictionaries(TEXTS, PLAIN, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_a_dict_never_counts(value, random):
    items = list(value.items())
    random.shuffle(items)
    assert of(dict(items)) == of(value)


def test_the_arguments_of_the_caller_are_left_as_they_are():
    payload = {"b": (1, 2), 3: [{"c": Decimal(1)}]}
    canonical(payload)
    assert payload == {"b": (1, 2), 3: [{"c": Decimal(1)}]}
    assert list(payload) == ["b", 3]


def test_what_was_chosen_is_a_copy_that_later_changes_do_not_reach():
    payload = {"items": [1]}
    plain = canonical(payload)
    payload["items"].append(2)
    assert plain == {"items": [1]}


def test_a_deep_but_finite_argument_has_a_digest():
    assert of(corpus.deep(100)) != of(corpus.deep(101))


# binding


def test_defaults_are_spelled_out():
    bound = bind(inspect.signature(lambda x, y=2, *, z=3: None), (1,), {})
    assert bound.arguments == {"x": 1, "y": 2, "z": 3}


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"other": 1})])
def test_a_call_that_the_function_does_not_take_is_a_type_error(args, kwargs):
    with pytest.raises(TypeError):
        bind(inspect.signature(lambda x, y=2: None), args, kwargs)
