"""Deaths at the end of a run, between any two of its steps: callbacks and chain sent | result stored | finish | acknowledged.

A worker with ``SHOP_KILLS=1`` looks at each step whether the test has armed it for this task id, and then kills itself:
its pool child (``child``), or its whole process group (``group``) once as many tasks as were armed stand at their steps.
"""

import os
import signal
import time

from celery.backends.base import Backend
from celery.worker.request import Request

from celery_once_more.locks.redis import RedisStore

#: where a child can die; the group can also die where the main process stands before the acknowledgement
CHILD_POINTS = ("sent", "stored", "finished")
POINTS = (*CHILD_POINTS, "unacknowledged")


class Kills:
    def __init__(self, witness):
        self.witness = witness

    def arm(self, task_id, point, who, together=1):
        self.witness.redis.hset("kills", task_id, f"{point} {who} {together}")

    def install(self):
        kills = self
        mark_as_done, finish, acknowledge = Backend.mark_as_done, RedisStore.finish, Request.acknowledge

        def dying_mark_as_done(self, task_id, *args, **kwargs):
            kills.reached("sent", task_id)
            return mark_as_done(self, task_id, *args, **kwargs)

        def dying_finish(self, ticket, **kwargs):
            kills.reached("stored", ticket.task_id)
            answer = finish(self, ticket, **kwargs)
            kills.reached("finished", ticket.task_id)
            return answer

        def dying_acknowledge(self):
            kills.reached("unacknowledged", self.id)
            acknowledge(self)

        Backend.mark_as_done, RedisStore.finish, Request.acknowledge = dying_mark_as_done, dying_finish, dying_acknowledge

    def reached(self, point, task_id):
        order = self.witness.redis.hget("kills", task_id)
        if order is None or order.split()[0] != point or not self.witness.redis.hdel("kills", task_id):
            return
        _, who, together = order.split()
        self.witness.say("killed", task_id, point=point, who=who)
        if who == "child":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.witness.redis.incr("kills:arrived") == int(together):
            os.killpg(os.getpgrp(), signal.SIGKILL)
        time.sleep(60)  # until the last one arrives, and takes all of them with it
        raise AssertionError("the others never came to their deaths")
