"""``shop`` with tasks that charge under a reservation: a plain one and a unique one. ``SHOP_DATABASE`` is the URL of its rows."""

import os
import signal

from shop import LATE, UNIQUE, Task, app, witness
from sqlalchemy import NullPool, create_engine

from celery_once_more.reservations import REFUSE, REPEAT, Reservations

__all__ = ["app"]

#: seconds that an attempt has the key: longer than it takes until its message comes again
LEASE = 8
reservations = Reservations.sqlalchemy(create_engine(os.environ["SHOP_DATABASE"], poolclass=NullPool))


def _charge(self, key, policy):
    def effect(reservation):
        witness.say("charge", key, dedup_key=reservation.dedup_key)
        if witness.redis.hdel("dies", key):
            os.kill(os.getpid(), signal.SIGKILL)
        return f"charged {key}"

    with witness.run(key, retries=self.request.retries):
        return reservations.run(("charge", key), effect, on_unknown=policy, lease=LEASE)


def _tasks(name, policy, **options):
    def charge(self, key):
        return _charge(self, key, policy)

    options = {**LATE, "bind": True, "autoretry_for": (Exception,), "retry_kwargs": {"countdown": 0}, "max_retries": 1} | options
    app.task(name=f"shop_reservations.plain_{name}", base=Task, **options)(charge)
    app.task(name=f"shop_reservations.unique_{name}", **UNIQUE, **options)(charge)


_tasks("repeat", REPEAT)
_tasks("refuse", REFUSE)
