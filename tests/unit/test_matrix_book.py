"""The witness of the matrix: one place per key, and a fence."""

import os
import subprocess
import sys

import pytest
from matrix.book import Book


@pytest.fixture
def book(tmp_path):
    return Book(tmp_path / "book.sqlite").make()


def test_a_run_that_enters_beside_one_whose_process_lives_is_an_overlap(book):
    assert book.enter("a", "first", 1) == (1, 1)
    assert book.enter("a", "second", 2) == (2, 1)
    assert book.overlaps("a") == [{"key": "a", "number": 2, "beside": 1}]


def test_runs_of_other_keys_and_those_after_the_end_of_the_last_one_overlap_with_nobody(book):
    book.enter("a", "first", 1)
    book.enter("b", "other", 1)
    book.leave("a", 1, "done")
    assert book.enter("a", "first", 2) == (2, 2)
    assert not book.overlaps("a")
    assert not book.overlaps("b")


def test_a_run_takes_the_place_of_a_process_that_is_dead(book):
    code = f"from matrix.book import Book; Book({book.path!r}).enter('a', 'first', 1)"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    book.enter("a", "second", 2)
    assert not book.overlaps("a")
    assert [row["number"] for row in book.inside("a")] == [2]


def test_the_end_of_an_older_run_leaves_the_place_to_the_newer_one(book):
    book.enter("a", "first", 1)
    book.enter("a", "second", 2)
    book.leave("a", 1, "done")
    assert [row["number"] for row in book.inside("a")] == [2]


def test_a_write_with_a_smaller_token_than_the_last_one_is_refused(book):
    book.write("a", 1, 10)
    book.write("a", 2, 11)
    book.write("a", 1, 10)
    assert book.refused("a") == [1]
    assert book.effect("a") == 2
