"""The package is typed: what a user writes against it passes ``mypy --strict``, and a misuse does not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import celery_once_more

HERE = Path(__file__).parent
USAGE, MISUSE = HERE / "usage.py", HERE / "misuse.py"


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What mypy says of both files, by file and line: away from the repository, so that the package is found as installed."""
    folder = tmp_path_factory.mktemp("mypy")
    command = [
        sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={folder}", "--no-error-summary", "--no-pretty",
        "--disable-error-code=import-untyped", "--disable-error-code=untyped-decorator",  # Celery has no types
        str(USAGE), str(MISUSE),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, cwd=folder)
    lines = [re.fullmatch(r"(.+?):(\d+): (error|note): (.*)", line) for line in done.stdout.splitlines()]
    assert lines, done.stderr
    assert all(lines), done.stdout + done.stderr
    return [(Path(m[1]).name, int(m[2]), m[3], m[4]) for m in lines]


def marked(path, pattern):
    """Line number -> what the comment behind it says."""
    found = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.search(pattern, line)
        if match:
            found[number] = match[1]
    return found


def test_the_public_api_passes_a_strict_type_check(told):
    assert [line for line in told if line[0] == USAGE.name and line[2] == "error"] == []


def test_types_are_what_they_are_documented_to_be(told):
    expected = marked(USAGE, r"reveal_type\(.*\)  # -> (.*)$")
    revealed = {}
    for name, number, _, text in told:
        match = re.fullmatch(r'Revealed type is "(.*)"', text)
        if match and name == USAGE.name:
            revealed[number] = re.sub(r"\b(?:builtins|typing|collections\.abc|celery_once_more(?:\.\w+)*)\.", "", match[1])
    assert len(expected) > 25
    assert revealed == expected


def test_misuse_is_refused(told):
    errors = {
        number: re.search(r"\[([\w-]+)\]$", text)[1]
        for name, number, kind, text in told
        if name == MISUSE.name and kind == "error"
    }
    assert errors == marked(MISUSE, r"# error: ([\w-]+)$")


def test_every_public_name_is_used_here():
    text = USAGE.read_text()
    assert [
        name for name in celery_once_more.__all__ if not re.search(rf"\b{name}\b", text.split("import (")[1].split(")")[0])
    ] == []
    assert [name for name in celery_once_more.signals.__all__ if f"signals.{name}" not in text] == []


def test_all_is_sorted_and_every_name_is_there():
    assert sorted(celery_once_more.__all__) == list(celery_once_more.__all__)
    assert all(hasattr(celery_once_more, name) for name in celery_once_more.__all__)


def test_the_package_says_that_it_is_typed():
    assert (Path(celery_once_more.__file__).parent / "py.typed").is_file()
