"""The columns of the matrix: three locks, each with early and late acknowledgement."""

from typing import NamedTuple


class Column(NamedTuple):
    lock: str
    #: ``early``, Celery's default, or ``late``, with ``reject_on_worker_lost``, as the README has it
    ack: str

    def __str__(self):
        return f"{self.lock}, {self.ack}"

    @property
    def at_publish(self):
        return self.lock != "while_executing"

    @property
    def at_start(self):
        return self.lock != "until_executed"


LOCKS = ("until_executed", "while_executing", "until_and_while_executing")
ACKS = {"early": {}, "late": {"acks_late": True, "reject_on_worker_lost": True}}
COLUMNS = tuple(Column(lock, ack) for lock in LOCKS for ack in ACKS)
