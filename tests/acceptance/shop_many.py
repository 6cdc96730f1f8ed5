"""``shop`` with a task of which a thousand run at once, and a witness of each pipelined trip that renews leases.

They see a file instead of a Redis, to which a thousand greenlets would need as many connections.
"""

import os
import time

from shop import UNIQUE, app, witness

from celery_once_more.locks.scripts import script
from celery_once_more.locks.wire import Wire

__all__ = ["app"]


@app.task(ignore_result=True, **UNIQUE)
def waits(number):
    """Seldom looks at the gate, since so many do."""
    while not os.path.exists(os.environ["SHOP_GATE"]):
        time.sleep(1)
    return number


def _note_renewals():
    send_many, renew = Wire.send_many, script("renew").sha

    def noted(wire, commands):
        renewed = sum(renew in command for command in commands)
        if renewed:
            witness.redis.rpush("renewals", renewed)
        return send_many(wire, commands)

    Wire.send_many = noted


_note_renewals()
