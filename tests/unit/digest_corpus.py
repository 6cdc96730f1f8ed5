"""Pairs of calls that are one call, pairs that are two, and calls that have no digest. Data, read by ``test_digest.py``.

Run as a program, it prints the digest of every call, for the comparison between processes.
"""

import collections
import dataclasses
import enum
import uuid
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path

from celery import Celery
from pydantic import BaseModel

from celery_once_more import UniqueTask
from celery_once_more.run import fresh_ticket

app = Celery("corpus", broker="memory://", set_as_current=False)


def unique(function):
    return app.task(base=UniqueTask, lock="until_executed", lazy=False, shared=False, name=function.__name__)(function)


@unique
def one(x):
    """One argument of any kind."""


@unique
def two(x, y=2):
    """One that is required, and a default."""


@unique
def flagged(x, *, flag=False):
    """One that is given by name only."""


@unique
def first(x, /, **kwargs):
    """A position that has a name of its own, which a keyword may have as well."""


@unique
def star(*args, **kwargs):
    """Whatever comes."""


@app.task(base=UniqueTask, lock="until_executed", bind=True, lazy=False, shared=False, name="own")
def own(self, x, y=2):
    """Takes itself as well."""


class OfAClass(UniqueTask):
    """A class-based task."""

    name = "of_a_class"
    lock = "until_executed"

    def run(self, x, y=2):
        """As ``two``."""


of_a_class = app.register_task(OfAClass())


def variant(name, function, **options):
    """A task with options of its own."""
    return app.task(base=UniqueTask, lock="until_executed", lazy=False, shared=False, name=name, **options)(function)


def event(event_id, payload=None, *, tags=()):
    """A webhook."""


named = variant("named", event, lock_args=["event_id"])
chosen = variant("chosen", event, lock_args=lambda event_id, payload=None, *, tags=(): [event_id, sorted(tags)])
scoped_one = variant("scoped.one", event, lock_scope="accounts")
scoped_two = variant("scoped.two", event, lock_scope="accounts")
scoped_like_a_name = variant("scoped.three", event, lock_scope="named")
across = variant("across", event, unique_across_queues=True)
across_scoped = variant("across.scoped", event, unique_across_queues=True, lock_scope="across")
while_executing = app.task(base=UniqueTask, lock="while_executing", lazy=False, shared=False, name="while.executing",
                           lock_scope="accounts")(event)  # fmt: skip


class Order(BaseModel):
    id: int
    note: str | None = None


def ordered(order: Order, times: int = 1):
    """Takes a model."""


modelled = variant("modelled", ordered, pydantic=True)


def call(task, *args, **kwargs):
    return task, args, kwargs


def sent(queue, the_call):
    """The call, to another queue than the default one."""
    return *the_call, queue


def digest_of(the_call):
    task, args, kwargs, queue = the_call if len(the_call) == 4 else (*the_call, "celery")
    ticket = fresh_ticket(task, task.once_more, args, kwargs, task_id="some id", queue=queue, series=0)
    return ticket.digest


class Number(enum.IntEnum):
    ONE = 1


class Colour(str, enum.Enum):
    RED = "red"


class Plain(enum.Enum):
    A = "a"


class Text(str):
    def __str__(self):
        return "shown otherwise"

    __repr__ = __str__


class Whole(int):
    def __repr__(self):
        return "shown otherwise"

    __str__ = __repr__


class Real(float):
    def __repr__(self):
        return "shown otherwise"

    __str__ = __repr__


class Knows:
    """Says its own JSON, as kombu allows."""

    def __json__(self):
        return {"b": 1, "a": [2]}


class SaysItself:
    def __json__(self):
        return self


class Model:
    def __repr__(self):
        return "<Model 7>"


@dataclasses.dataclass
class Pair:
    """kombu has no JSON for it."""

    a: int
    b: int


Point = collections.namedtuple("Point", "x y")
AWARE = datetime(2024, 2, 29, 12, tzinfo=timezone.utc)
LONG = "x" * 100_000

#: what, and the two calls that are one
EQUAL = [
    ("position and name", call(two, 1), call(two, x=1)),
    ("default left out and given by position", call(two, 1), call(two, 1, 2)),
    ("default left out and given by name", call(two, 1), call(two, 1, y=2)),
    ("names in another order", call(two, x=1, y=3), call(two, y=3, x=1)),
    ("positions and names", call(two, 1, 3), call(two, y=3, x=1)),
    ("keyword-only default left out and given", call(flagged, 1), call(flagged, 1, flag=False)),
    ("bound task: position and name", call(own, 1), call(own, x=1, y=2)),
    ("tuple and list", call(one, (1, 2)), call(one, [1, 2])),
    ("empty tuple and empty list", call(one, ()), call(one, [])),
    ("tuple and list inside", call(one, {"a": [(1, (2,))]}), call(one, {"a": [[1, [2]]]})),
    ("named tuple and list", call(one, Point(1, 2)), call(one, [1, 2])),
    ("dict in another order", call(one, {"a": 1, "b": 2}), call(one, {"b": 2, "a": 1})),
    ("dict inside in another order", call(one, [{"a": {"c": 1, "b": 2}}]), call(one, [{"a": {"b": 2, "c": 1}}])),
    ("ordered dict", call(one, collections.OrderedDict([("b", 2), ("a", 1)])), call(one, {"a": 1, "b": 2})),
    ("default dict", call(one, collections.defaultdict(list, a=[1])), call(one, {"a": [1]})),
    ("counter", call(one, collections.Counter("aab")), call(one, {"a": 2, "b": 1})),
    ("whole number as a key, and its text", call(one, {1: "a", -7: "b"}), call(one, {"1": "a", "-7": "b"})),
    ("True as a key, and its text", call(one, {True: 1}), call(one, {"true": 1})),
    ("None as a key, and its text", call(one, {None: 1}), call(one, {"null": 1})),
    ("float as a key, and its text", call(one, {1.5: 1, 1e100: 2}), call(one, {"1.5": 1, "1e+100": 2})),
    ("IntEnum as a key", call(one, {Number.ONE: 1}), call(one, {1: 1})),
    ("str enum as a key", call(one, {Colour.RED: 1}), call(one, {"red": 1})),
    ("keys that sort otherwise as numbers", call(one, {10: 1, 9: 2}), call(one, {"9": 2, "10": 1})),
    ("IntEnum and its number", call(one, Number.ONE), call(one, 1)),
    ("str enum and its text", call(one, Colour.RED), call(one, "red")),
    ("subclass of str", call(one, Text("a")), call(one, "a")),
    ("subclass of int", call(one, Whole(5)), call(one, 5)),
    ("subclass of float", call(one, Real(0.5)), call(one, 0.5)),
    ("subclasses as keys", call(one, {Text("a"): 1, Whole(5): 2}), call(one, {"a": 1, "5": 2})),
    ("an object that says its JSON", call(one, Knows()), call(one, {"a": [2], "b": 1})),
    ("keywords in another order", call(star, 1, a=1, b=2), call(star, 1, b=2, a=1)),
    ("no keywords, and none", call(star), call(star, *[])),
    ("UUID however it was written", call(one, uuid.UUID("ab" * 16)), call(one, uuid.UUID("{" + "ABAB-" * 7 + "ABAB}"))),
    ("one offset, two zone objects", call(one, AWARE), call(one, AWARE.replace(tzinfo=timezone(timedelta(0), "Z")))),
    ("a fold that the wire does not show", call(one, datetime(2024, 10, 27, 2)), call(one, datetime(2024, 10, 27, 2, fold=1))),
    ("Decimal, and what is sent for it", call(one, Decimal("1.50")), call(one, {"__type__": "decimal", "__value__": "1.50"})),
    ("bytes, and what is sent for them", call(one, b"ab"), call(one, {"__type__": "bytes", "__value__": "ab"})),
    ("a surrogate pair, and its character", call(one, "\ud83d\ude00"), call(one, "\U0001f600")),
    ("exponents of one float", call(one, 1e5), call(one, 100000.0)),
    ("class-based: position and name, and the default", call(of_a_class, 1), call(of_a_class, y=2, x=1)),
    ("a model, and what is sent for it", call(modelled, Order(id=1)), call(modelled, {"id": 1, "note": None})),
    ("a model by name", call(modelled, Order(id=1)), call(modelled, order=Order(id=1), times=1)),
    ("a model in fields of another order", call(modelled, Order(id=1, note="a")), call(modelled, Order(note="a", id=1))),
    ("lock_args: what does not count", call(named, "evt", {"a": 1}), call(named, event_id="evt", payload={3}, tags=["x"])),
    ("lock_args: a callable that sorts", call(chosen, "evt", tags=["b", "a"]), call(chosen, "evt", {"a": 1}, tags=("a", "b"))),
    ("lock_scope: two tasks that share it", call(scoped_one, "evt"), call(scoped_two, "evt")),
    ("lock_scope: a task of another lock", call(scoped_one, "evt"), call(while_executing, event_id="evt")),
    ("one queue", sent("other", call(one, 1)), sent("other", call(one, 1))),
    ("unique_across_queues: two queues", sent("a", call(across, "evt")), sent("b", call(across, "evt"))),
    ("unique_across_queues: a queue and none", sent("a", call(across, "evt")), sent(None, call(across, "evt"))),
    ("unique_across_queues: a scope that is the other's name", sent("a", call(across, "evt")), call(across_scoped, "evt")),
]  # fmt: skip

#: what, and the two calls that must not exclude each other
DIFFERENT = [
    ("1 and its text", call(one, 1), call(one, "1")),
    ("1 and True", call(one, 1), call(one, True)),
    ("0 and False", call(one, 0), call(one, False)),
    ("1 and 1.0", call(one, 1), call(one, 1.0)),
    ("1 and Decimal 1", call(one, 1), call(one, Decimal(1))),
    ("1.0 and Decimal 1.0", call(one, 1.0), call(one, Decimal("1.0"))),
    ("Decimal and its text", call(one, Decimal("1")), call(one, "1")),
    ("Decimals of another precision", call(one, Decimal("1")), call(one, Decimal("1.0"))),
    ("True and its text", call(one, True), call(one, "true")),
    ("None and its text in JSON", call(one, None), call(one, "null")),
    ("None and its text in Python", call(one, None), call(one, "None")),
    ("None and False", call(one, None), call(one, False)),
    ("None and 0", call(one, None), call(one, 0)),
    ("None and the empty text", call(one, None), call(one, "")),
    ("None and the empty list", call(one, None), call(one, [])),
    ("empty list and empty dict", call(one, []), call(one, {})),
    ("empty list and a list of one empty list", call(one, []), call(one, [[]])),
    ("a thing and a list of it", call(one, 1), call(one, [1])),
    ("another order in a list", call(one, [1, 2]), call(one, [2, 1])),
    ("another nesting", call(one, [1, [2]]), call(one, [[1], 2])),
    ("a thing twice in a list", call(one, [1]), call(one, [1, 1])),
    ("another value in a dict", call(one, {"a": 1}), call(one, {"a": 2})),
    ("another key in a dict", call(one, {"a": 1}), call(one, {"b": 1})),
    ("a key with None, and no key", call(one, {"a": None}), call(one, {})),
    ("values swapped", call(one, {"a": 1, "b": 2}), call(one, {"a": 2, "b": 1})),
    ("dict, and the list of its pairs", call(one, {"a": 1}), call(one, [["a", 1]])),
    ("keys True and 1", call(one, {True: 1}), call(one, {1: 1})),
    ("keys 1 and 1.0", call(one, {1: 1}), call(one, {1.0: 1})),
    ("keys 1 and 01", call(one, {"1": 1}), call(one, {"01": 1})),
    ("keys None and None's text in Python", call(one, {None: 1}), call(one, {"None": 1})),
    ("a list, and its JSON", call(one, ["a"]), call(one, '["a"]')),
    ("a comma in a text", call(one, ["a", "b"]), call(one, ["a,b"])),
    ("quotes in a text", call(one, ['a","b']), call(one, ["a", "b"])),
    ("a backslash", call(one, "\\n"), call(one, "\n")),
    ("an escape, spelled out", call(one, "\\u00e9"), call(one, "\u00e9")),
    ("letter case", call(one, "a"), call(one, "A")),
    ("a space behind", call(one, "a"), call(one, "a ")),
    ("the zero character", call(one, ""), call(one, "\0")),
    ("composed and decomposed", call(one, "\u00e9"), call(one, "e\u0301")),
    ("two lone surrogates", call(one, "\ud800"), call(one, "\ud801")),
    ("a lone surrogate, and a question mark", call(one, "\udcff"), call(one, "?")),
    ("long texts that differ at the end", call(one, LONG + "a"), call(one, LONG + "b")),
    ("zero and minus zero", call(one, 0.0), call(one, -0.0)),
    ("floats next to each other", call(one, 0.1 + 0.2), call(one, 0.3)),
    ("beyond 2**53", call(one, 2**53), call(one, 2**53 + 1)),
    ("beyond 2**64", call(one, 2**64), call(one, 2**64 + 1)),
    ("a thousand digits", call(one, 10**1000), call(one, 10**1000 + 1)),
    ("a number and its negative", call(one, 1), call(one, -1)),
    ("10**16, and the float", call(one, 10**16), call(one, 1e16)),
    ("date and midnight", call(one, date(2024, 2, 29)), call(one, datetime(2024, 2, 29))),
    ("date and its text", call(one, date(2024, 2, 29)), call(one, "2024-02-29")),
    ("datetime and its text", call(one, AWARE), call(one, AWARE.isoformat())),
    ("with and without a zone", call(one, AWARE), call(one, AWARE.replace(tzinfo=None))),
    ("one moment in two zones", call(one, AWARE), call(one, AWARE.astimezone(timezone(timedelta(hours=1))))),
    ("a microsecond later", call(one, AWARE), call(one, AWARE + timedelta(microseconds=1))),
    ("time and its text", call(one, time(1, 2)), call(one, "01:02:00")),
    ("UUID and its text", call(one, uuid.UUID(int=1)), call(one, str(uuid.UUID(int=1)))),
    ("two UUIDs", call(one, uuid.UUID(int=1)), call(one, uuid.UUID(int=2))),
    ("bytes and text", call(one, b"a"), call(one, "a")),
    ("bytes that are no text, and their base64", call(one, b"\xff"), call(one, "/w==")),
    ("bytes that are base64, and what they say", call(one, b"/w=="), call(one, b"\xff")),
    ("IntEnum and its name", call(one, Number.ONE), call(one, "ONE")),
    ("str enum and its name", call(one, Colour.RED), call(one, "RED")),
    ("arguments swapped", call(two, 1, 2), call(two, 2, 1)),
    ("another value than the default", call(two, 1), call(two, 1, 3)),
    ("the default's text", call(two, 1), call(two, 1, "2")),
    ("a flag", call(flagged, 1), call(flagged, 1, flag=True)),
    ("two positions, and a pair", call(star, 1, 2), call(star, (1, 2))),
    ("no position, and None", call(star), call(star, None)),
    ("keywords, and a dict of them", call(star, a=1), call(star, {"a": 1})),
    ("keywords, and one named kwargs", call(star, a=1), call(star, kwargs={"a": 1})),
    ("keywords, and one named as they are kept", call(star, a=1), call(star, **{"**": {"a": 1}})),
    ("a position, and a keyword named args", call(star, 1), call(star, args=[1])),
    ("another position beside a keyword named args", call(star, 1, args=2), call(star, 9, args=2)),
    ("another position beside a keyword of its name", call(first, 1, x=2), call(first, 5, x=2)),
    ("position and keyword of one name swapped", call(first, 1, x=2), call(first, 2, x=1)),
    ("two tasks", call(one, 1), call(two, 1)),
    ("two tasks of the same function", call(two, 1), call(of_a_class, 1)),
    ("class-based: another value than the default", call(of_a_class, 1), call(of_a_class, 1, 3)),
    ("two models", call(modelled, Order(id=1)), call(modelled, Order(id=2))),
    ("a model, and a part of what is sent for it", call(modelled, Order(id=1)), call(modelled, {"id": 1})),
    ("a model, and its JSON", call(modelled, Order(id=1)), call(modelled, Order(id=1).model_dump_json())),
    ("lock_args: what counts", call(named, "evt"), call(named, "evt2")),
    ("lock_args: all of a call, and a part", call(scoped_like_a_name, "evt"), call(named, "evt")),
    ("lock_args: a callable, another choice", call(chosen, "evt", tags=["a"]), call(chosen, "evt", tags=["b"])),
    ("lock_scope: two tasks that share it, another call", call(scoped_one, "evt"), call(scoped_two, "evt", 1)),
    ("lock_scope: with it and without", call(scoped_one, "evt"), call(across, "evt")),
    ("lock_scope: on another queue", sent("a", call(scoped_one, "evt")), sent("b", call(scoped_two, "evt"))),
    ("two queues", sent("a", call(one, 1)), sent("b", call(one, 1))),
    ("a queue, and none", sent("celery", call(one, 1)), sent(None, call(one, 1))),
    ("a queue whose name is a part of the other", sent("a", call(one, 1)), sent("ab", call(one, 1))),
    ("queues in another letter case", sent("a", call(one, 1)), sent("A", call(one, 1))),
    ("an empty name of a queue, and none", sent("", call(one, 1)), sent(None, call(one, 1))),
    ("unique_across_queues: another call", sent("a", call(across, "evt")), sent("a", call(across, "evt", 1))),
]  # fmt: skip


def looped_list():
    loop = [1]
    loop.append(loop)
    return loop


def looped_dict():
    inner = {}
    inner["outer"] = {"inner": inner}
    return inner


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


#: what, the call, the argument that the error names, and what it says of it
REFUSED = [
    ("a set", call(one, {1, 2}), "x", "set cannot be sent as JSON"),
    ("a frozenset", call(one, frozenset([1])), "x", "frozenset cannot be sent as JSON"),
    ("an object", call(one, Model()), "x", "Model cannot be sent as JSON"),
    ("a dataclass", call(one, Pair(1, 2)), "x", "Pair cannot be sent as JSON"),
    ("a dataclass inside", call(one, {"a": [Pair(1, 2)]}), "x['a'][0]", "Pair cannot be sent as JSON"),
    ("class-based", call(of_a_class, 1, y=Model()), "y", "Model cannot be sent as JSON"),
    ("lock_args: what counts, though more does not", call(named, {1}, {2}), "event_id", "set cannot be sent as JSON"),
    ("lock_args: what a callable returned", call(chosen, {1}), "lock_args(…)[0]", "set cannot be sent as JSON"),
    ("a class", call(one, Model), "x", "type cannot be sent as JSON"),
    ("a function", call(one, call), "x", "function cannot be sent as JSON"),
    ("a generator", call(one, (i for i in ())), "x", "generator cannot be sent as JSON"),
    ("a range", call(one, range(3)), "x", "range cannot be sent as JSON"),
    ("dict keys", call(one, {}.keys()), "x", "dict_keys cannot be sent as JSON"),
    ("a bytearray", call(one, bytearray(b"a")), "x", "bytearray cannot be sent as JSON"),
    ("a timedelta", call(one, timedelta(1)), "x", "timedelta cannot be sent as JSON"),
    ("a complex number", call(one, 1j), "x", "complex cannot be sent as JSON"),
    ("an enum without a JSON type", call(one, Plain.A), "x", "Plain cannot be sent as JSON"),
    ("a path", call(one, Path("a")), "x", "PosixPath cannot be sent as JSON"),
    ("an exception", call(one, ValueError("a")), "x", "ValueError cannot be sent as JSON"),
    ("no number", call(one, float("nan")), "x", "nan is not JSON"),
    ("infinity", call(one, float("inf")), "x", "inf is not JSON"),
    ("minus infinity", call(one, float("-inf")), "x", "-inf is not JSON"),
    ("more digits than Python writes", call(one, 10**5000), "x", "digits"),
    ("more digits than Python writes, as a key", call(one, {10**5000: 1}), "x", "digits"),
    ("no number, as a key", call(one, {float("nan"): 1}), "x", "nan is not JSON"),
    ("infinity, as a key", call(one, {"a": {float("inf"): 1}}), "x['a']", "inf is not JSON"),
    ("a tuple as a key", call(one, {(1, 2): 1}), "x", "(1, 2) is not a JSON key"),
    ("bytes as a key", call(one, {b"a": 1}), "x", "b'a' is not a JSON key"),
    ("an enum as a key", call(one, {Plain.A: 1}), "x", "is not a JSON key"),
    ("a date as a key", call(one, {date(2024, 1, 1): 1}), "x", "is not a JSON key"),
    ("keys 1 and its text", call(one, {1: "a", "1": "b"}), "x", "two of its keys are '1'"),
    ("keys True and its text", call(one, {True: "a", "true": "b"}), "x", "two of its keys are 'true'"),
    ("keys None and its text, inside", call(one, [{None: 1, "null": 2}]), "x[0]", "two of its keys are 'null'"),
    ("a list in itself", call(one, looped_list()), "x", "contains itself"),
    ("a dict in itself", call(one, looped_dict()), "x", "contains itself"),
    ("an object that says itself", call(one, SaysItself()), "x", "contains itself"),
    ("nested too deeply", call(one, deep(100_000)), "x", "nested too deeply"),
    ("inside a list", call(one, [0, 1, {2}]), "x[2]", "set cannot be sent as JSON"),
    ("inside a dict", call(one, {"items": [1, 2, 3, Model()]}), "x['items'][3]", "Model cannot be sent as JSON"),
    ("under a numeric key", call(one, {7: Model()}), "x[7]", "Model cannot be sent as JSON"),
    ("in a tuple in a dict in a list", call(one, [{"a": (1, float("nan"))}]), "x[0]['a'][1]", "nan is not JSON"),
    ("by name", call(two, 1, y={1}), "y", "set cannot be sent as JSON"),
    ("behind a good one", call(two, [], y=[Model()]), "y[0]", "Model cannot be sent as JSON"),
    ("among positions", call(star, 1, {2}), "args[1]", "set cannot be sent as JSON"),
    ("among keywords", call(star, good=1, bad=[{2}]), "bad[0]", "set cannot be sent as JSON"),
    ("keyword-only", call(flagged, 1, flag=Model()), "flag", "Model cannot be sent as JSON"),
    ("of a bound task", call(own, Model()), "x", "Model cannot be sent as JSON"),
]


if __name__ == "__main__":
    import sys

    sys.stdout.write("\n".join(digest_of(the_call) for _, *pair in EQUAL + DIFFERENT for the_call in pair))
