"""Time limits."""

from support.waiting import eventually


def passes(cell):
    eventually(lambda: cell.state() == "FAILURE", what="the time limit")
