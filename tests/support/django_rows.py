"""Models of the kinds that projects have; not before Django is set up."""

import uuid
from types import SimpleNamespace

from django.db import models


def list_of_new():
    return ["new"]


def models_of_rows():
    """An order, a parcel of it, an order with a table beside its parent's, and a proxy."""
    if not hasattr(models_of_rows, "made"):

        class Order(models.Model):
            number = models.IntegerField(primary_key=True)

            class Meta:
                app_label = "rows"

        class Parcel(models.Model):
            id = models.UUIDField(primary_key=True, default=uuid.uuid4)
            order = models.ForeignKey(Order, models.CASCADE)
            code = models.CharField(max_length=20)
            tags = models.JSONField(default=list_of_new)
            packed_at = models.DateTimeField(auto_now_add=True)

            class Meta:
                app_label = "rows"
                unique_together = [("order", "code")]

        class Express(Order):
            class Meta:
                app_label = "rows"

        class Proxy(Order):
            class Meta:
                app_label, proxy = "rows", True

        models_of_rows.made = SimpleNamespace(Order=Order, Parcel=Parcel, Express=Express, Proxy=Proxy)
    return models_of_rows.made
