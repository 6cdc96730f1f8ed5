"""A project of Django whose settings are not ready for reservations is told what they lack."""

import os
import subprocess
import sys

import pytest
from django.db import connections
from support.django_databases import databases, run
from support.django_reservations import do

from celery_once_more import ConfigurationError
from celery_once_more.reservations import Reservations
from celery_once_more.reservations.row import TABLE

pytest_plugins = ["support.django_reservation_fixtures"]


def test_an_alias_that_is_none_is_refused_with_the_nearest(reservations):
    with pytest.raises(ConfigurationError, match="no alias 'defualt'; did you mean 'default'"):
        Reservations.django("defualt")


def test_a_database_that_nobody_has_taught_us_is_refused_by_name():
    with databases(default={}), pytest.raises(ConfigurationError, match="no dialect 'unknown'"):
        Reservations.django()
    with databases(default={"ENGINE": "support.oracle"}), pytest.raises(ConfigurationError, match="no dialect 'oracle'"):
        Reservations.django()
    with databases(default={"ENGINE": "no.such"}), pytest.raises(ConfigurationError, match=r"no\.such"):
        Reservations.django()


def test_a_missing_table_names_the_command_that_makes_it(reservations):
    with databases(default=dict(connections.settings["default"]), other=dict(connections.settings["default"])):
        run(f"ALTER TABLE {TABLE} RENAME TO away")
        try:
            with pytest.raises(ConfigurationError, match=r"manage.py migrate once_more, or"):
                do(reservations)
            with pytest.raises(ConfigurationError, match=r"migrate once_more --database other, or"):
                do(Reservations.django("other"))
        finally:
            run(f"ALTER TABLE away RENAME TO {TABLE}")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("sys.modules['django'] = None; Reservations.django()", "needs Django 4.2 or later"),
        ("Reservations.django()", "settings are not configured"),
        ("configure(); Reservations.django().create_table()", "put 'celery_once_more.django' into INSTALLED_APPS"),
        (
            "configure(); Reservations.django().run('a', str, on_unknown=REPEAT, lease=60)",
            "'celery_once_more.django' in INSTALLED_APPS, and python manage.py migrate once_more",
        ),
    ],
)
def test_a_project_that_is_not_ready_is_told_what_it_lacks(program, words):
    """Which can import everything."""
    before = """
import sys
from celery_once_more.reservations import REPEAT, Reservations
def configure():
    import django
    from django.conf import settings
    settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
    django.setup()
    import celery_once_more.django
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", before + program], env=env, capture_output=True, text=True, timeout=60)
    assert "celery_once_more.exceptions.ConfigurationError" in done.stderr
    assert words in done.stderr
