"""Being told when a module has been imported."""

import importlib
import importlib.util
import sys
from contextlib import suppress

import pytest

from celery_once_more.testing.instruments.late import on_import


@pytest.fixture
def write(tmp_path, monkeypatch):
    """``write("name", "code")`` -> a module that can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    written = []

    def write_one(name, code):
        (tmp_path / f"{name}.py").write_text(code)
        importlib.invalidate_caches()
        written.append(name)

    yield write_one
    for name in written:
        sys.modules.pop(name, None)


@pytest.fixture
def told():
    return []


def watching(told, name="late_one"):
    return on_import({name: lambda: told.append(vars(sys.modules[name]).get("ready"))})


def test_it_is_told_once_when_the_modules_own_code_has_run(write, told):
    write("late_one", "ready = True")
    with watching(told):
        for _ in range(2):
            importlib.import_module("late_one")
    assert told == [True]


def test_nothing_is_told_of_other_modules_or_of_one_that_is_there(write, told):
    write("late_one", "ready = True")
    write("late_two", "ready = True")
    importlib.import_module("late_one")
    with watching(told):
        importlib.import_module("late_one")
        importlib.import_module("late_two")
    assert told == []


def test_nothing_is_told_of_an_import_that_fails(write, told):
    write("late_one", "1 / 0")
    with watching(told), suppress(ZeroDivisionError):
        importlib.import_module("late_one")
    with watching(told, "not_there"), suppress(ModuleNotFoundError):
        importlib.import_module("not_there")
    assert told == []


def test_nothing_is_told_afterwards_of_a_module_that_was_only_looked_for(write, told):
    write("late_one", "ready = True")
    with watching(told):
        spec = importlib.util.find_spec("late_one")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert told == []
    assert not any(type(finder).__module__.startswith("celery_once_more") for finder in sys.meta_path)
