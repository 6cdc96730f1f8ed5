"""A run through Django's layer, and what stands in its table."""

from celery_once_more.reservations import REPEAT
from celery_once_more.reservations.row import TABLE
from support.django_databases import run


class Undo(Exception):
    pass


def do(reservations, key="a", **how):
    return reservations.run(key, lambda r: "done", **{"on_unknown": REPEAT, "lease": 60, **how})


def states():
    return [state for (state,) in run(f"SELECT state FROM {TABLE} ORDER BY created_at")]
