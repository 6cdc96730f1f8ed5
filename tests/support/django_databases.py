"""Django's connections for one test, and what stands in a table ``orders`` of theirs."""

import django
from django.conf import settings
from django.db import connections, models

#: the project of all tests that share a process
PROJECT = {
    "INSTALLED_APPS": [
        "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.messages",
        "django.contrib.sessions", "celery_once_more.django",
    ],
    "SECRET_KEY": "of the tests",
    "ROOT_URLCONF": "support.django_urls",
    "MIDDLEWARE": [
        "django.contrib.sessions.middleware.SessionMiddleware", "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    "TEMPLATES": [
        {"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True, "OPTIONS": {"context_processors": [
            "django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
            "django.contrib.messages.context_processors.messages",
        ]}},
    ],
}  # fmt: skip


def set_up():
    if not settings.configured:
        settings.configure(**PROJECT)
        django.setup()


def database(name, request, tmp_path):
    """One of ``DATABASES``, for "sqlite", "postgresql" or "mariadb"."""
    if name == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "django.sqlite3")}
    if name == "postgresql":
        return of_postgresql(request.getfixturevalue("postgres_server").where())
    return of_mariadb(request.getfixturevalue("mariadb_server").port)


def of_postgresql(at):
    return {"ENGINE": "django.db.backends.postgresql", "NAME": at["dbname"], "USER": at["user"], "HOST": at["host"],
            "PORT": at["port"]}  # fmt: skip


def of_mariadb(port):
    import pymysql

    from support.mariadb_server import NAME

    pymysql.install_as_MySQLdb()  # the driver that Django asks for is compiled
    return {"ENGINE": "django.db.backends.mysql", "NAME": NAME, "USER": "root", "HOST": "127.0.0.1", "PORT": port}


class databases:  # noqa: N801
    """``with databases(default={...}):`` in the place of those of the settings."""

    def __init__(self, **wanted):
        self.wanted = wanted

    def __enter__(self):
        set_up()
        _forget()
        self.before = connections.settings
        connections.settings = connections.configure_settings(self.wanted)

    def __exit__(self, *_):
        _forget()
        connections.settings = self.before


def _forget():
    """A connection keeps the settings that it was made for."""
    for connection in connections.all(initialized_only=True):
        connection.close()
        del connections[connection.alias]


def add_alias(alias, one):
    """One more of them, which nobody takes away again."""
    set_up()
    connections.settings[alias] = connections.configure_settings({"default": {}, alias: one})[alias]


def run(sql, using="default", params=None):
    with connections[using].cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


def rows(using="default"):
    return [number for (number,) in run("SELECT number FROM orders ORDER BY number", using)]


def order_model():
    """A model of the table; not before Django is set up."""
    if not hasattr(order_model, "made"):

        class Order(models.Model):
            number = models.IntegerField(primary_key=True)

            class Meta:
                app_label = "points"
                db_table = "orders"
                managed = False

        order_model.made = Order
    return order_model.made
