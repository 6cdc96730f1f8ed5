"""The shop's books of ``books.py`` as a Django project has them: models, and what stands in their tables."""

from django.db import connection, models

from support.books import TABLES


def book_models():
    """A model for each table; not before Django is set up."""
    if not hasattr(book_models, "made"):

        def model(name, **columns):
            meta = type("Meta", (), {"app_label": "books", "db_table": f"books_{name.lower()}"})
            return type(name, (models.Model,), {"__module__": __name__, "Meta": meta, **columns})

        book_models.made = {
            "orders": model("Order", ref=models.IntegerField()),
            "payments": model("Payment", ref=models.IntegerField(primary_key=True), state=models.CharField(max_length=20)),
            "once": model("Once", ref=models.IntegerField(unique=True)),
            "accounts": model("Account", balance=models.IntegerField()),
        }
        assert list(book_models.made) == [table.name for table in TABLES]
    return book_models.made


class DjangoBooks:
    """One database, a bank and a post office that outlive every process."""

    def __init__(self, bank, post):
        self.bank, self.post = bank, post
        self.orders, self.payments, self.once, self.accounts = (model.objects for model in book_models().values())

    def __enter__(self):
        with connection.schema_editor() as editor:
            for model in book_models().values():
                editor.create_model(model)
        return self

    def __exit__(self, *_):
        with connection.schema_editor() as editor:
            for model in book_models().values():
                editor.delete_model(model)

    def seed(self):
        for model in book_models().values():
            model.objects.all().delete()
        self.accounts.create(id=1, balance=100)
        self.bank.reset()
        self.post.reset()

    def look(self):
        return {
            "orders": sorted(self.orders.values_list("ref", flat=True)),
            "payments": sorted(self.payments.values_list("ref", "state")),
            "once": sorted(self.once.values_list("ref", flat=True)),
            "balance": self.accounts.get(id=1).balance,
            "charged": self.bank.effects,
            "mailed": self.post.effects,
        }
