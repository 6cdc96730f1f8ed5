"""The two points of one effect, and how an instrument puts itself in the place of a library's function for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from celery_once_more.crash import Kind, reach


@contextmanager
def boundary(kind: Kind, what: str, *, key: str = "") -> Iterator[None]:
    """Around exactly the effect. One that fails has no point after it: nobody knows whether it was done."""
    reach("before", kind, what, key=key)
    yield
    reach("after", kind, what, key=key)


class Replaced:
    """Attributes that were replaced, and what they were."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def put(self, owner: Any, name: str, replacement: Any) -> None:
        """Set ``owner.name``; an attribute that the owner only inherits is not left behind as its own."""
        if name in vars(owner):
            self._undo.append(partial(setattr, owner, name, vars(owner)[name]))
        else:
            self._undo.append(partial(delattr, owner, name))
        setattr(owner, name, replacement)

    def restore(self) -> None:
        while self._undo:
            self._undo.pop()()
