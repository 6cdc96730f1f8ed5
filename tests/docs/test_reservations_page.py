"""What docs/reservations.md shows is run, and what the code has is written down."""

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import MetaData, create_engine, select
from sqlalchemy import inspect as look_at

from celery_once_more import exceptions, reservations
from celery_once_more.reservations import Policy, Reservations
from celery_once_more.reservations.forms import MAX_RESULT
from celery_once_more.reservations.keys import MAX_LENGTH
from celery_once_more.reservations.sqlalchemy import reservation_table
from celery_once_more.reservations.terms import MARGIN_S, MAX_TAKEOVERS, REPEAT_WITHIN

PAGE = (Path(__file__).parents[2] / "docs" / "reservations.md").read_text()
SHOP, CARE, DJANGO = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
DJANGO_SETTINGS = """
import django
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "django.db"}},
    INSTALLED_APPS=["celery_once_more.django"],
)
django.setup()
"""


@pytest.fixture
def bank(far_side):
    return far_side("honours_key")


@pytest.fixture
def shop(bank, tmp_path, monkeypatch):
    """The page's module, on an empty database, at a bank that honours keys."""
    path = tmp_path / "shop.py"
    path.write_text(SHOP.replace("http://localhost:8000", bank.url).replace("shop.db", str(tmp_path / "shop.db")))
    spec = importlib.util.spec_from_file_location("shop", path)
    shop = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "shop", shop)
    spec.loader.exec_module(shop)
    shop.metadata.create_all(shop.engine)
    shop.reservations.create_table()
    yield shop
    shop.app.close()
    shop.engine.dispose()


def test_the_job_comes_to_the_right_end_wherever_it_dies(shop, bank, crash_points):
    def setup():
        bank.reset()
        with shop.engine.begin() as tx:
            for table in ("lines", "orders", "once_more_reservation"):
                tx.exec_driver_sql(f"DELETE FROM {table}")
            tx.execute(shop.insert(shop.orders).values(id=1))

    def state():
        with shop.engine.connect() as tx:
            rows = {table.name: sorted(tuple(row) for row in tx.execute(select(table))) for table in (shop.lines, shop.orders)}
        return {**rows, "charged": bank.effects}

    report = crash_points.check(shop.checkout, args=(1,), setup=setup, state=state, rival=True)
    assert report.ok, str(report)
    assert {"lines": [(1, 1)], "orders": [(1, "charge-1")]}.items() <= state().items()


def test_the_block_that_cares_for_rows_runs(shop, capsys):
    with pytest.raises(ZeroDivisionError):
        shop.reservations.run(("charge", 1), lambda r: 1 / 0, on_unknown=reservations.REFUSE, lease=60)
    exec(compile(CARE, "reservations.md", "exec"), {})
    assert capsys.readouterr().out.startswith("('charge', 1) ")
    assert shop.app.conf.beat_schedule["purge-reservations"]["task"] in shop.app.tasks


def test_the_block_for_django_runs(tmp_path):
    script = f"""{DJANGO_SETTINGS}
{DJANGO}
from django.core.management import call_command
call_command("migrate", "once_more", verbosity=0)
sent = []
assert [confirm(1, lambda order: sent.append(order) or "sent") for _ in range(2)] == ["sent", "sent"]
assert sent == [1]
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def rows_under(heading):
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| ")][1:]


def test_every_policy_is_named():
    policies = {name for name in reservations.__all__ if isinstance(getattr(reservations, name), Policy)} | {"verify"}
    named = [re.match(r"`(\w+)", row[0])[1] for row in rows_under("If nobody knows: `on_unknown`")]
    assert sorted(named) == sorted(policies)


def test_every_error_is_named_with_what_it_has():
    root = exceptions.ReservationError
    found = [error for error in vars(exceptions).values() if isinstance(error, type) and issubclass(error, root)]
    errors = {error.__name__: error for error in found if error is not root and not error.__name__.startswith("_")}
    rows = {row[0].strip("`"): re.findall(r"`\.(\w+)`", row[2]) for row in rows_under("What is raised")}
    assert rows.keys() == errors.keys()
    for name, attributes in rows.items():
        has = {attribute for attribute in dir(errors[name]) if isinstance(getattr(errors[name], attribute), property)}
        assert has == set(attributes), name


def test_every_argument_and_limit_is_named():
    for method in (Reservations.run, Reservations.purge):
        for argument in list(inspect.signature(method).parameters)[1:]:
            assert re.search(rf"`[^`]*\b{argument}\b[^`]*`", PAGE), argument
    assert (MAX_RESULT, MAX_LENGTH, MARGIN_S, MAX_TAKEOVERS, REPEAT_WITHIN.total_seconds()) == (65536, 255, 30, 5, 24 * 3600)


def test_what_the_page_names_for_alembic_makes_the_table(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/alembic.db")
    tables = MetaData()
    reservation_table(tables)
    tables.create_all(engine)
    assert look_at(engine).get_table_names() == ["once_more_reservation"]
    engine.dispose()
