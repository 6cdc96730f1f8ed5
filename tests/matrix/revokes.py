"""Calls that are revoked, or expire."""

import time

from support.waiting import eventually


def before_start(cell):
    cell.floor.tell("revoke", cell.first.id)
    cell.deliver()


def held_for_eta(cell):
    eventually(lambda: f"{cell.first.id}] received" in cell.worker.logs(), what="the message in the worker's hands")
    cell.floor.tell("revoke", cell.first.id)


def terminate(cell):
    cell.floor.tell("revoke", cell.first.id, terminate=True, signal="SIGKILL")


def expire(cell):
    over = time.time() + cell.row.options["expires"]
    eventually(lambda: time.time() > over and not cell.holding(), what="the end of its time")
    cell.deliver()
