"""Django's layer, in the hands of the reservations' contract."""

import itertools
from contextlib import contextmanager

from contract.reservations.backend import Backend
from contract.reservations.models import django_models
from django.core.management import call_command
from django.db import Error, IntegrityError, connections
from django.db import transaction as django_transaction
from support.django_databases import add_alias, of_mariadb, of_postgresql

from celery_once_more.reservations import Reservations


class DjangoBackend(Backend):
    """Its ``tx`` is a connection; each backend, and each transaction of it, has an alias of its own."""

    layer = "django"
    levels = ("REPEATABLE READ", "SERIALIZABLE")
    DatabaseError, IntegrityError = Error, IntegrityError
    _numbers = itertools.count()

    def connect(self):
        self.alias = self._alias(self.isolation)
        self.reservations = Reservations.django(self.alias)
        self.Written, self.Line = django_models()

    def _alias(self, isolation):
        if self.name == "sqlite":
            one = {"ENGINE": "django.db.backends.sqlite3", "NAME": self.url.database}
            one["OPTIONS"] = {"timeout": 0.2} if self.hasty else {}
        elif self.name == "postgresql":
            at = {"dbname": self.url.database, "user": self.url.username, "host": self.url.host, "port": self.url.port}
            one = of_postgresql(at)
            one["OPTIONS"] = {} if isolation is None else {"isolation_level": _level_of_psycopg(isolation)}
        else:
            one = of_mariadb(self.url.port)
            one["OPTIONS"] = {"init_command": "SET innodb_lock_wait_timeout = 1"} if self.hasty else {}
            if isolation is not None:
                one["OPTIONS"]["isolation_level"] = isolation.lower()
        alias = f"contract-{next(self._numbers)}"
        add_alias(alias, one)
        return alias

    def close(self):
        self.end_thread()
        super().close()

    def end_thread(self):
        connections[self.alias].close()

    def forget_table(self):
        call_command("migrate", "once_more", "zero", database=self.alias, interactive=False, verbosity=0)

    def no_transactions(self):
        return [None, self.alias, connections[self.alias], "no alias", self.engine]

    @contextmanager
    def transaction(self, isolation=None):
        alias = self._alias(isolation)
        try:
            with django_transaction.atomic(using=alias):
                yield connections[alias]
        finally:
            connections[alias].close()

    def execute(self, tx, sql):
        with tx.cursor() as cursor:
            cursor.execute(sql)

    def write(self, tx, word):
        self.Written.objects.using(tx.alias).create(word=word)

    def words_in(self, tx):
        return list(self.Written.objects.using(tx.alias).order_by("id").values_list("word", flat=True))

    def watch(self, statement=lambda word: None, commit=lambda: None):
        connection = connections[self.alias]

        def execute(send, sql, *rest):
            if sql != "BEGIN":
                statement(sql.split()[0])
            return send(sql, *rest)

        connection.execute_wrappers.append(execute)
        connection._commit = _after(commit, connection._commit)
        connection._rollback = _after(lambda: statement("ROLLBACK"), connection._rollback)


def _after(first, then):
    def both():
        first()
        return then()

    return both


def _level_of_psycopg(isolation):
    from django.db.backends.postgresql.psycopg_any import IsolationLevel

    return IsolationLevel[isolation.replace(" ", "_")]
