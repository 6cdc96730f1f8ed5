"""Django's connections "default" and "other" to one database with a table ``orders``, on SQLite and on PostgreSQL."""

import pytest

from support.django_databases import databases, run


@pytest.fixture(params=["sqlite", "postgres"])
def django_database(request, tmp_path):
    if request.param == "sqlite":
        one = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "orders.sqlite3")}
    else:
        at = request.getfixturevalue("postgres_server").where()
        one = {"ENGINE": "django.db.backends.postgresql", "NAME": at["dbname"], "USER": at["user"],
               "HOST": at["host"], "PORT": at["port"]}  # fmt: skip
    with databases(default=one, other=dict(one)):
        run("CREATE TABLE orders (number integer PRIMARY KEY)")
        yield request.param
        run("DROP TABLE orders")
