"""What each kind of fault does to a worker, which is on its feet again afterwards. ``False``: there was nothing to do it to."""

import os
import signal
import time

from support.waiting import eventually

from soak.stall import Stall

#: seconds that a worker has to end when it is told to: a child of prefork waits for half a minute until its results were read,
#: which they are not where the main process stops just after its start
ENDS_WITHIN = 60


class OnAWorker:
    """One method for each kind, of its name."""

    def __init__(self, floor):
        self.floor = floor

    def kill_child(self, worker, fault):
        children = sorted(worker.children)
        if not children:
            return False
        try:
            os.kill(children[int(fault.which * len(children))], signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def kill_main(self, worker, fault):
        worker.kill("SIGKILL")
        worker.process.wait()
        self._restart(worker)

    def kill_group(self, worker, fault):
        worker.signal_group("SIGKILL")
        worker.process.wait()
        self._restart(worker)

    def warm_shutdown(self, worker, fault):
        self._shut_down(worker, "SIGTERM")

    def cold_shutdown(self, worker, fault):
        """Told twice if need be: Celery's handler raises where a pool cannot end a job (threads, greenlets), and where that meets
        the worker in the middle of a log line, Python swallows it, and the worker goes on.
        """
        if worker.name != "prefork":
            worker.kill("SIGQUIT")
            if self._ends(worker, "SIGQUIT", ENDS_WITHIN / 4):
                self._restart(worker)
                return
        self._shut_down(worker, "SIGQUIT")

    def _ends(self, worker, how, within):
        try:
            return eventually(lambda: worker.status == "exited", within=within, what=f"the end of {worker.name} after {how}")
        except AssertionError:
            return False

    def _shut_down(self, worker, how):
        worker.kill(how)
        if not self._ends(worker, how, ENDS_WITHIN):
            worker.signal_group("SIGUSR2")  # where each of its processes stands goes to the log
            time.sleep(1)
            self.floor.witness.say("hung", worker=worker.name, how=how)
        self._restart(worker)

    def _restart(self, worker):
        worker.kill_group()
        worker.start()
        worker.ready()

    def pause_shortly(self, worker, fault):
        with Stall(self.floor.witness, worker.name):
            worker.signal_group("SIGSTOP")
            time.sleep(fault.seconds)
            worker.signal_group("SIGCONT")

    pause_beyond_the_lease = pause_shortly
