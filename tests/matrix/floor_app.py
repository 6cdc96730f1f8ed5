"""The app of the workers, for ``celery -A matrix.floor_app``; ``FLOOR`` is JSON: the path of the book, and settings."""

import json
import os

from matrix.book import Book
from matrix.floor_tasks import build
from matrix.mutants import MUTANTS

_said = json.loads(os.environ["FLOOR"])
app = build(Book(_said["book"]), **_said["conf"])
if "FLOOR_MUTANT" in os.environ:
    MUTANTS[os.environ["FLOOR_MUTANT"]].install()
