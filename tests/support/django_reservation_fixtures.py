"""Reservations through Django, in "default", beside which "other" is another connection to the same database."""

import pytest
from django.db import connection

from celery_once_more.reservations import Reservations
from celery_once_more.reservations.row import TABLE
from support.django_databases import database, databases, run
from support.django_rows import models_of_rows

DATABASES = ["sqlite", "postgresql", "mariadb"]


@pytest.fixture(params=DATABASES)
def one(request, tmp_path):
    """Of ``DATABASES``."""
    return database(request.param, request, tmp_path)


@pytest.fixture
def reservations(one):
    """In "default", beside which "other" is another connection to the same database."""
    with databases(default=one, other=dict(one)):
        made = Reservations.django()
        made.create_table()
        yield made
        run(f"DROP TABLE {TABLE}")
        run("DROP TABLE django_migrations")


@pytest.fixture
def rows(reservations):
    """Models with their tables."""
    made = models_of_rows()
    own = [made.Order, made.Parcel, made.Express]
    with connection.schema_editor() as editor:
        for model in own:
            editor.create_model(model)
    yield made
    with connection.schema_editor() as editor:
        for model in reversed(own):
            editor.delete_model(model)
