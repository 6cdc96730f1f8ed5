"""The app "once_more": its migration on every database, beside SQLAlchemy's table; and what a person does in the admin."""

import os
import subprocess
import sys

import pytest
from django.contrib.auth import get_user_model
from django.contrib.messages import get_messages
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.test import Client, override_settings
from django.urls import reverse
from sqlalchemy import create_engine, inspect
from support.django_databases import database, databases, run

from celery_once_more import ConfigurationError
from celery_once_more.reservations import REFUSE, REPEAT, OutcomeUnknown, Reservations
from celery_once_more.reservations.row import TABLE

DATABASES = ["sqlite", "postgresql", "mariadb"]


def migrate(*words, using="default"):
    call_command("migrate", *words, database=using, interactive=False, verbosity=0)


@pytest.fixture(params=DATABASES)
def both(request, tmp_path):
    """Django and SQLAlchemy on one database that has no table yet."""
    one = database(request.param, request, tmp_path)
    driver = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mariadb": "mysql+pymysql"}[request.param]
    at = f"{one['USER']}@{one['HOST']}:{one['PORT']}/" if "USER" in one else "/"
    engine = create_engine(f"{driver}://{at}{one['NAME']}")
    with databases(default=one):
        yield Reservations.django(), Reservations.sqlalchemy(engine), engine
        for table in (TABLE, "django_migrations"):
            run(f"DROP TABLE IF EXISTS {table}")
    engine.dispose()


def do(reservations, key):
    return reservations.run(key, lambda r: f"done for {key}", on_unknown=REPEAT, lease=60)


# The table


def test_the_migration_is_as_the_model():
    with databases(default={"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}):
        call_command("makemigrations", "once_more", check=True, dry_run=True, verbosity=0)


def shape(engine):
    seen = inspect(engine)
    columns = {one["name"]: (str(one["type"].as_generic()), one["nullable"]) for one in seen.get_columns(TABLE)}
    indexes = {one["name"]: one["column_names"] for one in seen.get_indexes(TABLE)}
    return columns, seen.get_pk_constraint(TABLE)["constrained_columns"], indexes["once_more_reservation_care"]


def test_the_migrations_table_is_the_one_that_sqlalchemy_makes(both):
    _, other, engine = both
    migrate("once_more")
    of_django = shape(engine)
    migrate("once_more", "zero")
    other.create_table()
    assert of_django == shape(engine)


@pytest.mark.parametrize("maker", ["django", "sqlalchemy"])
def test_what_is_done_through_one_layer_is_done_to_the_other(both, maker):
    first, second, engine = both
    (first if maker == "django" else second).create_table()
    assert do(first, "a") == do(second, "a") == "done for a"
    assert do(second, "b") == do(first, "b") == "done for b"
    with transaction.atomic():
        assert first.once("c")
    with engine.begin() as tx:
        assert not second.once("c", tx=tx)
    for number, (one, other) in enumerate([(first, second), (second, first)]):
        with pytest.raises(ZeroDivisionError):
            one.run(number, lambda r: 1 / 0, on_unknown=REFUSE, lease=60)
        with pytest.raises(OutcomeUnknown):
            other.run(number, lambda r: 1, on_unknown=REFUSE, lease=60)


def test_a_table_that_is_there_is_noted_as_migrated(both):
    first, second, _ = both
    second.create_table()
    for _ in range(2):
        first.create_table()
    migrate("once_more")
    assert do(first, "a") == "done for a"


def test_a_table_that_another_process_makes_meanwhile_is_no_error(both):
    """After it was looked for: here, when the migration begins."""
    first, second, _ = both

    def create(execute, sql, *rest):
        if sql.startswith(f"CREATE TABLE {connection.ops.quote_name(TABLE)}"):
            second.create_table()
        return execute(sql, *rest)

    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    with connection.execute_wrapper(create):
        first.create_table()
    assert do(first, "a") == "done for a"


class Elsewhere:
    """A router that has reservations in "other"."""

    def db_for_read(self, model, **_):
        return "other" if model._meta.app_label == "once_more" else None

    db_for_write = db_for_read

    def allow_migrate(self, db, app_label, **_):
        return (db == "other") == (app_label == "once_more")


def test_the_table_is_where_the_router_puts_it(tmp_path):
    one = {"ENGINE": "django.db.backends.sqlite3"}
    files = {alias: {**one, "NAME": str(tmp_path / alias)} for alias in ("default", "other")}
    with databases(**files), override_settings(DATABASE_ROUTERS=[f"{__name__}.Elsewhere"]):
        Reservations.django().create_table()
        assert TABLE not in connections["default"].introspection.table_names()
        with pytest.raises(ConfigurationError, match="no table"):
            do(Reservations.django(), "a")
        migrate("once_more", using="other")
        assert do(Reservations.django("other"), "a") == "done for a"


def test_importing_the_package_of_the_app_needs_neither_settings_nor_the_app():
    program = """
import celery_once_more.django
from django.conf import settings
settings.configure()
import django, sys
django.setup()
assert celery_once_more.django.UniqueTask and "celery_once_more.django.models" not in sys.modules
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


# The admin


@pytest.fixture(params=[False, True], ids=["plain", "atomic requests"])
def site(request, tmp_path):
    one = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "admin"), "ATOMIC_REQUESTS": request.param}
    with databases(default=one):
        migrate()
        yield Reservations.django()


def client(**who):
    made = Client()
    made.force_login(get_user_model().objects.create_user("person", is_staff=True, **who))
    return made


def leave_unknown(reservations, key):
    with pytest.raises(ZeroDivisionError):
        reservations.run(key, lambda r: 1 / 0, on_unknown=REFUSE, lease=60)


LIST = "admin:once_more_reservation_changelist"


def act(person, action):
    selected = [key for (key,) in run(f"SELECT dedup_key FROM {TABLE}")]
    answer = person.post(reverse(LIST), {"action": action, "_selected_action": selected})
    return [str(message) for message in get_messages(answer.wsgi_request)]


def test_a_person_reads_the_list_and_filters_it_by_state(site):
    do(site, ("charge", 42))
    leave_unknown(site, ("mail", 43))
    person = client(is_superuser=True)
    everything = person.get(reverse(LIST)).content.decode()
    assert "[&quot;charge&quot;, 42]" in everything
    unknown = person.get(reverse(LIST), {"state": "unknown"}).content.decode()
    assert "[&quot;mail&quot;, 43]" in unknown
    assert "[&quot;charge&quot;, 42]" not in unknown


def test_nobody_adds_edits_or_deletes_a_row_by_hand(site):
    do(site, "a")
    person = client(is_superuser=True)
    (key,) = run(f"SELECT dedup_key FROM {TABLE}")[0]
    assert person.get(reverse("admin:once_more_reservation_add")).status_code == 403
    assert person.post(reverse("admin:once_more_reservation_delete", args=[key]), {"post": "yes"}).status_code == 403
    change = reverse("admin:once_more_reservation_change", args=[key])
    assert person.get(change).status_code == 200
    assert person.post(change, {"state": "free"}).status_code == 403
    assert "delete_selected" not in person.get(reverse(LIST)).content.decode()
    assert run(f"SELECT state FROM {TABLE}") == [("done",)]


def test_a_person_says_that_it_was_done(site):
    leave_unknown(site, "a")
    assert act(client(is_superuser=True), "resolve_as_done") == ["Resolved: 1."]
    assert do(site, "a") is None


def test_a_person_says_that_it_was_not_done(site):
    leave_unknown(site, "a")
    assert act(client(is_superuser=True), "resolve_as_not_done") == ["Resolved: 1."]
    assert do(site, "a") == "done for a"


class ReadsElsewhere:
    def db_for_read(self, model, **_):
        return "replica" if model._meta.app_label == "once_more" else None


def test_what_a_person_says_is_written_where_the_router_writes(tmp_path):
    one = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "admin")}

    def read_only(execute, sql, *rest):
        assert sql.startswith("SELECT")
        return execute(sql, *rest)

    with databases(default=one, replica=dict(one)), override_settings(DATABASE_ROUTERS=[f"{__name__}.ReadsElsewhere"]):
        migrate()
        leave_unknown(Reservations.django(), "a")
        person = client(is_superuser=True)
        with connections["replica"].execute_wrapper(read_only):
            assert act(person, "resolve_as_done") == ["Resolved: 1."]


def test_of_what_is_known_or_runs_a_person_is_told_and_it_stays(site):
    do(site, "known")
    with transaction.atomic():
        site.once("marker")
    leave_unknown(site, "marker")  # of another kind, and the same name
    with site.reserve("running", on_unknown=REPEAT, lease=60):
        said = act(client(is_superuser=True), "resolve_as_not_done")
    assert sorted(said) == sorted([
        'reservation "known": its outcome is known: it is done', '"marker": a marker of once() has no outcome to resolve',
        next(one for one in said if one.startswith('reservation "running": another attempt has it')), "Resolved: 1.",
    ])  # fmt: skip
    assert sorted(run(f"SELECT state FROM {TABLE}")) == [("done",), ("done",), ("done",), ("free",)]


def test_who_may_only_look_resolves_nothing(site):
    from django.contrib.auth.models import Permission

    leave_unknown(site, "a")
    person = client()
    get_user_model().objects.get().user_permissions.add(Permission.objects.get(codename="view_reservation"))
    assert "resolve_as_done" not in person.get(reverse(LIST)).content.decode()
    assert act(person, "resolve_as_done") != ["Resolved: 1."]
    assert run(f"SELECT state FROM {TABLE}") == [("unknown",)]
