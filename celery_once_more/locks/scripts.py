"""The Lua of each act: its text (``record.lua`` and its own file), its SHA1, and sending it.

``EVALSHA`` first; after ``NOSCRIPT`` (a restart, a failover, ``SCRIPT FLUSH``) the text itself, which loads it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from redis.exceptions import NoScriptError

from celery_once_more.locks.wire import Command, Wire

Arguments = Sequence[str | int]


class Script:
    def __init__(self, name: str) -> None:
        lua = files(__package__) / "lua"
        self.text = (lua / "record.lua").read_text() + (lua / f"{name}.lua").read_text()
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def run(self, wire: Wire, keys: Sequence[str], argv: Arguments, **how: Any) -> Any:
        """``how``: as :meth:`Wire.send` takes it."""
        try:
            return wire.send(("EVALSHA", self.sha, len(keys), *keys, *argv), **how)
        except NoScriptError:
            return wire.send(("EVAL", self.text, len(keys), *keys, *argv), **how)

    def run_many(self, wire: Wire, calls: Sequence[tuple[Sequence[str], Arguments]]) -> list[Any]:
        """All calls in one pipelined round trip; an answer may be the exception that this one call met."""
        commands: list[Command] = [("EVALSHA", self.sha, len(keys), *keys, *argv) for keys, argv in calls]
        answers = wire.send_many(commands)
        again = [i for i, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if again:  # only these: what the others did is done, and their answers tell of it
            _, *repeated = wire.send_many([("SCRIPT", "LOAD", self.text), *(commands[i] for i in again)])
            for i, answer in zip(again, repeated, strict=True):
                answers[i] = answer
        return answers


@cache
def script(name: str) -> Script:
    return Script(name)
