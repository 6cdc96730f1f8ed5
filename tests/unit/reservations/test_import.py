"""Reservations can be imported without what they are used with."""

import os
import subprocess
import sys

import pytest

from celery_once_more import ConfigurationError, reservations
from celery_once_more.reservations import Reservations
from celery_once_more.reservations.statements import CLOCKS, statements


def test_the_package_is_imported_without_sqlalchemy_until_it_is_used():
    program = """
import sys
sys.modules.update(sqlalchemy=None, django=None)
from celery_once_more.reservations import *
try:
    Reservations.sqlalchemy("an engine")
except ImportError as exc:
    print("sqlalchemy" in str(exc))
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.returncode) == ("True", 0), done.stderr


def test_all_is_sorted_and_every_name_is_there():
    assert (
        sorted(reservations.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name)) == reservations.__all__
    )
    assert all(hasattr(reservations, name) for name in reservations.__all__)


def test_what_is_no_engine_is_refused():
    from sqlalchemy.ext.asyncio import create_async_engine

    with pytest.raises(ConfigurationError, match="takes an Engine"):
        Reservations.sqlalchemy("sqlite://")
    with pytest.raises(ConfigurationError, match="give its sync_engine"):
        Reservations.sqlalchemy(create_async_engine("postgresql+psycopg://nowhere/x"))


def test_an_unknown_dialect_is_refused_with_those_that_are_known():
    with pytest.raises(ConfigurationError, match="no dialect 'oracle'; there is: 'sqlite', 'postgresql', 'mysql'"):
        statements("oracle")


@pytest.mark.parametrize("dialect", CLOCKS)
def test_every_statement_that_moves_an_attempts_row_compares_state_token_attempt_and_lease(dialect):
    sql = statements(dialect)
    for statement in (sql.take, sql.settle, sql.complete, sql.extend):
        compared = statement.split(" WHERE ")[1]
        assert [
            word for word in ("dedup_key = :", "state = ", "token = :", "attempt = :", "lease_until ") if word not in compared
        ] == []
