"""What the drivers' errors mean."""

import sqlite3

import psycopg
import pymysql
import pytest

from celery_once_more.reservations.row import TABLE
from celery_once_more.reservations.troubles import trouble_of

ERRORS = [
    ("postgresql", psycopg.errors.SerializationFailure(), "again"),
    ("postgresql", psycopg.errors.DeadlockDetected(), "again"),
    ("postgresql", psycopg.errors.LockNotAvailable(), "locked"),
    ("postgresql", psycopg.errors.UniqueViolation(), "duplicate"),
    ("postgresql", psycopg.errors.NotNullViolation(), "other"),
    ("postgresql", psycopg.errors.UndefinedTable(f'relation "{TABLE}" does not exist'), "no table"),
    ("postgresql", psycopg.errors.UndefinedTable('relation "orders" does not exist'), "other"),
    ("postgresql", psycopg.errors.AdminShutdown(), "lost"),
    ("postgresql", psycopg.OperationalError("server closed the connection unexpectedly"), "lost"),
    ("postgresql", psycopg.ProgrammingError("the query has 2 placeholders but 1 parameters were passed"), "other"),
    ("postgresql", None, "other"),
    ("mysql", pymysql.err.OperationalError(1213, "Deadlock found"), "again"),
    ("mysql", pymysql.err.OperationalError(1205, "Lock wait timeout exceeded"), "locked"),
    ("mysql", pymysql.err.IntegrityError(1062, "Duplicate entry"), "duplicate"),
    ("mysql", pymysql.err.IntegrityError(1048, "Column cannot be null"), "other"),
    ("mysql", pymysql.err.ProgrammingError(1146, f"Table 'shop.{TABLE}' doesn't exist"), "no table"),
    ("mysql", pymysql.err.ProgrammingError(1146, "Table 'shop.orders' doesn't exist"), "other"),
    ("mysql", pymysql.err.OperationalError(2013, "Lost connection"), "lost"),
    ("mysql", pymysql.err.InterfaceError(0, ""), "lost"),
    ("mysql", pymysql.err.OperationalError(1045, "Access denied"), "other"),
    ("mysql", None, "other"),
    ("sqlite", sqlite3.OperationalError("database is locked"), "locked"),
    ("sqlite", sqlite3.OperationalError(f"no such table: {TABLE}"), "no table"),
    ("sqlite", sqlite3.OperationalError("no such table: orders"), "other"),
    ("sqlite", sqlite3.IntegrityError("UNIQUE constraint failed: orders.number"), "duplicate"),
    ("sqlite", None, "other"),
]


@pytest.mark.parametrize(("dialect", "error", "trouble"), ERRORS, ids=lambda one: str(one)[:40])
def test_an_error_has_one_meaning(dialect, error, trouble):
    assert trouble_of(dialect, error) == trouble
