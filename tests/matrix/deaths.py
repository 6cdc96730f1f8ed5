"""What a body does to its own process (``bodies.py`` has the deeds of the body itself)."""

from support.waiting import eventually


def ends(cell):
    """As its body says."""
    cell.open(cell.first, 1)


def ends_its_process(cell):
    """A child of the pool, or the whole worker where there are no children."""
    ends(cell)
    if cell.floor.pool != "prefork":
        cell.gone()


def ends_its_thread(cell):
    """Only a child ends by itself: a thread or greenlet leaves its request behind for ever, and solo is the worker."""
    if cell.floor.pool in ("threads", "gevent"):
        leaves_its_request_behind(cell)
    elif cell.floor.pool == "solo":
        ends_its_process(cell)
    else:
        ends(cell)


def leaves_its_request_behind(cell):
    """Celery's main process does not finish with it: what is not acknowledged comes back when that worker ends."""
    ends(cell)
    eventually(lambda: not [one for one in cell.holding() if one.phase == "R"], what="the end of the run")
    cell.new_worker()
