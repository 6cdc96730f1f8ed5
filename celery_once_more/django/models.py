"""The table of reservations, for migrations and the admin. Its rows are written by ``Reservations`` alone."""

from __future__ import annotations

from django.db import models

from celery_once_more.reservations.keys import MAX_LENGTH
from celery_once_more.reservations.row import TABLE


class Reservation(models.Model):
    """As :class:`celery_once_more.reservations.row.Row`; times are microseconds since the epoch, on the database's clock."""

    dedup_key = models.CharField(max_length=40, primary_key=True)
    #: the key, as JSON
    label = models.CharField(max_length=MAX_LENGTH)
    state = models.CharField(max_length=8)
    token = models.BigIntegerField()
    attempt = models.CharField(max_length=32)
    takeovers = models.IntegerField()
    since = models.BigIntegerField()
    lease_until = models.BigIntegerField()
    fingerprint = models.CharField(max_length=40, null=True)
    result = models.TextField(null=True)
    created_at = models.BigIntegerField()
    updated_at = models.BigIntegerField()

    class Meta:
        db_table = TABLE
        indexes = [models.Index(fields=["state", "updated_at"], name="once_more_reservation_care")]

    def __str__(self) -> str:
        return self.label
