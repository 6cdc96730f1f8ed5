"""The caller's own tables, to SQLAlchemy and to Django."""

from django.db import models
from sqlalchemy import Column, Integer, MetaData, String, Table, UniqueConstraint
from sqlalchemy.orm import registry

mapping = registry(metadata=MetaData())
#: what the caller's own writes are
written = Table(
    "contract_written", mapping.metadata, Column("id", Integer, primary_key=True), Column("word", String(40), nullable=False)
)
lines = Table(
    "contract_lines", mapping.metadata,
    Column("id", Integer, primary_key=True), Column("order_no", Integer, nullable=False),
    Column("sku", String(40), nullable=False),
    Column("serial", String(40), unique=True), Column("note", String(40), nullable=False, default="none"),
    UniqueConstraint("order_no", "sku"),
)  # fmt: skip


class Line:
    pass


mapping.map_imperatively(Line, lines, properties={"order": lines.c.order_no})


def django_models():
    """The same; not before Django is set up."""
    if not hasattr(django_models, "made"):

        class Written(models.Model):
            id = models.AutoField(primary_key=True)
            word = models.CharField(max_length=40)

            class Meta:
                app_label, db_table, managed = "contract", written.name, False

        class Line(models.Model):
            id = models.AutoField(primary_key=True)
            order = models.IntegerField(db_column="order_no")
            sku = models.CharField(max_length=40)
            serial = models.CharField(max_length=40, unique=True, null=True)
            note = models.CharField(max_length=40, default="none")

            class Meta:
                app_label, db_table, managed = "contract", lines.name, False
                unique_together = [("order", "sku")]

        django_models.made = Written, Line
    return django_models.made
