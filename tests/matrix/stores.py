"""What happens to the lock store, and to the reaper."""

import signal
import subprocess
import sys

from support.waiting import eventually

from celery_once_more.reaper import reap

#: a pass asks a hundred and more times in several rounds; this one dies before its third
MURDER = """
import os, signal
from celery_once_more.locks.redis import RedisStore
from celery_once_more.reaper import reap
from matrix.floor_app import app
ask, rounds = RedisStore._run_many, []
def ask_or_die(*args):
    rounds.append(1)
    if len(rounds) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return ask(*args)
RedisStore._run_many = ask_or_die
reap(app)
"""


def cut(cell):
    """The worker cannot reach the store when its run ends, and for a while after."""
    cell.floor.locks_proxy.refuse()
    cell.ended()
    eventually(lambda: cell.state() == "SUCCESS", what="a result without a store")
    eventually(lambda: "lapses with its lease" in cell.worker.logs(), what="the end of its run")
    cell.floor.locks_proxy.mend()


def pause(cell):
    """The store stands still when the run ends."""
    cell.floor.locks.signal(signal.SIGSTOP)
    cell.ended()
    eventually(lambda: cell.state() == "SUCCESS", what="a result without a store")
    eventually(lambda: "lapses with its lease" in cell.worker.logs(), what="the end of its run")
    cell.floor.locks.signal(signal.SIGCONT)


def flush(cell):
    """The store forgets everything while the task runs; its worker takes the lock again when it next renews its leases."""
    cell.floor.locks.client(0).flushall()
    eventually(cell.holding, what="the lock taken again")
    cell.twin()
    cell.ended()


def kill_the_reaper(cell):
    """The worker is gone, its lock has lapsed, and the pass that is about to free it dies half-way. The next one does."""
    cell.worker.kill_group()
    eventually(lambda: not cell.holding(), what="the end of the lease")
    murdered = subprocess.run([sys.executable, "-c", MURDER], env=cell.worker.env, timeout=60, capture_output=True)
    assert murdered.returncode == -signal.SIGKILL, murdered.stderr
    reap(cell.floor.app)
    cell.new_worker()
