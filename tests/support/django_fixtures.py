"""Django's connections "default" and "other" to one database with a table ``orders``, on SQLite and on PostgreSQL."""

import pytest

from support.django_databases import database, databases, run


@pytest.fixture(params=["sqlite", "postgresql"])
def django_database(request, tmp_path):
    one = database(request.param, request, tmp_path)
    with databases(default=one, other=dict(one)):
        run("CREATE TABLE orders (number integer PRIMARY KEY)")
        yield request.param
        run("DROP TABLE orders")
