"""Tells when a module has been imported, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any


@contextmanager
def on_import(wanted: Mapping[str, Callable[[], None]]) -> Iterator[None]:
    """Call what is wanted for a module when its own code has run; one that is imported already is not looked at."""
    finder = _Finder(wanted)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        finder.over = True


class _Finder(MetaPathFinder):
    """Asks the finders behind it, and stays in nobody's way."""

    def __init__(self, wanted: Mapping[str, Callable[[], None]]) -> None:
        self._wanted = wanted
        self.over = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self._wanted:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)) is not None:
                self._tell_after(spec, self._wanted[name])
                return spec
        return None

    def _tell_after(self, spec: ModuleSpec, tell: Callable[[], None]) -> None:
        loader: Any = spec.loader
        if loader is None or not hasattr(loader, "exec_module"):
            return
        execute = loader.exec_module

        def execute_and_tell(module: Any) -> None:
            loader.exec_module = execute
            execute(module)
            if not self.over:
                tell()

        loader.exec_module = execute_and_tell
