"""What one SQL text does to the world: nothing, or an effect with a short name that has no values in it.

No parser of any database: it reads as far as it must to tell a statement that writes, and the table. What a function does
that a SELECT calls is not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

EffectKind = Literal["sql", "commit", "rollback"]


@dataclass(frozen=True, kw_only=True)
class Effect:
    kind: EffectKind
    #: such as ``INSERT INTO orders``
    what: str


def effect_of(sql: str) -> Effect | None:
    """``None`` for a text that writes nothing; of several statements in one text, the first that writes counts."""
    reader = _Reader(sql)
    while reader.here is not _END:
        while reader.takes("(", ";"):
            pass
        found = _statement(reader)
        if found is not None:
            return found
        while reader.here is not _END and reader.here.text != ";":
            reader.take()
    return None


class _Token(NamedTuple):
    #: a name without its quotes; a word as it was written
    text: str
    #: the word in upper case; empty for everything that is not a bare word
    word: str = ""
    quoted: bool = False


_END = _Token("")
_TOKEN = re.compile(
    r"""
    (?P<space> \s+ | --[^\n]* | /\*(?:[^*/]|\*(?!/)|/(?!\*)|/\*.*?\*/)*\*/ )
    | (?P<value> '(?:[^']|'')*' | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | \d[\w.]* )
    | (?P<quoted> "(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^\]\n]*\] )
    | (?P<word> [^\W\d][\w$]* )
    | (?P<sign> . )
    """,
    re.VERBOSE | re.DOTALL,
)
#: MySQL's comment to the end of the line; elsewhere in a text it may be an operator
_HASH = re.compile(r"\s*#[^\n]*\n")


def _tokens(sql: str) -> Iterator[_Token]:
    start = 0
    while hash_comment := _HASH.match(sql, start):
        start = hash_comment.end()
    for found in _TOKEN.finditer(sql, start):
        text = found.group()
        if found.lastgroup == "word":
            yield _Token(text, word=text.upper())
        elif found.lastgroup == "quoted":
            yield _Token(text[1:-1], quoted=True)
        elif found.lastgroup != "space":
            yield _Token(text if found.lastgroup == "sign" else "'")


class _Reader:
    """The tokens of a text, read no further than asked."""

    def __init__(self, sql: str) -> None:
        self._rest = _tokens(sql)
        self.here = next(self._rest, _END)

    def take(self) -> _Token:
        taken, self.here = self.here, next(self._rest, _END)
        return taken

    def takes(self, *expected: str) -> bool:
        """Whether one of these words (in upper case) or signs was here, and is taken."""
        here = not self.here.quoted and (self.here.word or self.here.text) in expected
        if here:
            self.take()
        return here

    def name(self) -> str:
        """``shop.orders`` from ``"shop"."orders"``; empty where no name is."""
        name = ""
        while self.here.word or self.here.quoted:
            name += self.take().text
            if not self.takes("."):
                break
            name += "."
        return name


#: what changes rows, and how it is called
_ROWS = {"INSERT": "INSERT INTO", "REPLACE": "REPLACE INTO", "MERGE": "MERGE INTO", "UPDATE": "UPDATE", "DELETE": "DELETE FROM",
         "TRUNCATE": "TRUNCATE"}  # fmt: skip
#: between the verb and the table
_BY_THE_WAY = ("INTO", "FROM", "ONLY", "TABLE", "IGNORE", "LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK")
_SCHEMA = ("CREATE", "ALTER", "DROP", "RENAME")
#: between the verb of a schema's change and what is changed
_ASIDE = ("OR", "REPLACE", "TEMP", "TEMPORARY", "GLOBAL", "LOCAL", "UNLOGGED", "UNIQUE", "MATERIALIZED", "VIRTUAL", "RECURSIVE",
          "FOREIGN")  # fmt: skip
_MAYBE = ("IF", "NOT", "EXISTS", "CONCURRENTLY", "ONLY")
_COMMITS = ("COMMIT", "END")
_ROLLBACKS = ("ROLLBACK", "ABORT")
#: first words that change no data
_HARMLESS = frozenset(
    """SELECT VALUES TABLE SHOW EXPLAIN DESCRIBE DESC HELP PRAGMA SET RESET USE BEGIN START SAVEPOINT RELEASE DECLARE FETCH MOVE
    CLOSE DISCARD LISTEN UNLISTEN DEALLOCATE ATTACH DETACH LOCK UNLOCK ANALYZE VACUUM REINDEX OPTIMIZE CHECKPOINT FLUSH
    KILL""".split()
)


def _statement(reader: _Reader) -> Effect | None:
    verb = reader.here.word
    if not verb or verb in _HARMLESS:
        return None
    if verb == "WITH":
        return _with(reader)
    if verb in _ROWS:
        return _rows(reader)
    reader.take()
    if verb in _COMMITS or verb in _ROLLBACKS:
        return _outcome(reader, "commit" if verb in _COMMITS else "rollback")
    if verb in _SCHEMA:
        return _schema(reader, verb)
    if verb == "COPY":
        return _copy(reader)
    if verb == "XA":
        return _distributed(reader)
    if verb == "PREPARE" and reader.here.word != "TRANSACTION":
        return None
    return _other(reader, verb)


def _sql(*words: str) -> Effect:
    return Effect(kind="sql", what=" ".join(word for word in words if word))


def _rows(reader: _Reader) -> Effect:
    verb = reader.take().word
    if reader.takes("OR"):
        reader.take()  # INSERT OR IGNORE
    while reader.takes(*_BY_THE_WAY):
        pass
    return _sql(_ROWS[verb], reader.name())


def _with(reader: _Reader) -> Effect | None:
    """A common table expression may write by itself, or the statement after it does."""
    written: Effect | None = None
    depth, before = 0, reader.take()
    while reader.here is not _END and reader.here.text != ";":
        here = reader.here
        starts_statement = here.word in _ROWS or here.word in _HARMLESS
        if depth == 0 and starts_statement and before.word not in ("WITH", "RECURSIVE") and before.text != ",":
            return _rows(reader) if here.word in _ROWS else written
        if depth and here.word in _ROWS and before.text == "(" and written is None:
            written = _rows(reader)
            before = here
            continue
        depth += {"(": 1, ")": -1}.get(here.text, 0)
        before = reader.take()
    return written


def _outcome(reader: _Reader, kind: EffectKind) -> Effect | None:
    while reader.takes("WORK", "TRANSACTION"):
        pass
    if reader.takes("TO"):
        return None  # a savepoint
    return Effect(kind=kind, what=kind.upper() + (" PREPARED" if reader.takes("PREPARED") else ""))


def _schema(reader: _Reader, verb: str) -> Effect:
    while reader.takes(*_ASIDE):
        pass
    sort = reader.take().word
    while reader.takes(*_MAYBE):
        pass
    return _sql(verb, sort, reader.name())


def _copy(reader: _Reader) -> Effect | None:
    name = reader.name()
    while reader.here is not _END and not reader.takes("FROM"):
        if reader.take().word == "TO":
            return None
    return _sql("COPY", name) if name else None


def _distributed(reader: _Reader) -> Effect | None:
    act = reader.take().word
    if act in ("COMMIT", "ROLLBACK"):
        return Effect(kind="commit" if act == "COMMIT" else "rollback", what=f"XA {act}")
    return _sql("XA", act) if act == "PREPARE" else None


def _other(reader: _Reader, verb: str) -> Effect:
    words = [verb]
    while len(words) < 3 and reader.here.word:
        words.append(reader.name())
    return _sql(*words)
