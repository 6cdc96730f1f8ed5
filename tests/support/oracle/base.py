"""A database that reservations do not know, as far as anybody looks."""

from django.db.backends.dummy.base import DatabaseWrapper as Dummy


class DatabaseWrapper(Dummy):
    vendor = "oracle"
