"""Processes that a test forks: they tell how they ended, and can be killed, frozen and thawed."""

import multiprocessing
import os
import signal
import traceback

FORK = multiprocessing.get_context("fork")
#: seconds for whatever a child does
DEADLINE = 90


class Child:
    """``work(tell)`` in a forked process; ``tell(word)`` is read by ``hear``."""

    def __init__(self, work):
        self._ear, mouth = FORK.Pipe(duplex=False)
        self.process = FORK.Process(target=self._live, args=(work, mouth), daemon=True)
        self.process.start()
        mouth.close()

    def _live(self, work, mouth):
        try:
            mouth.send(("returned", work(mouth.send)))
        except BaseException as exc:
            traceback.print_exc()
            mouth.send(("raised", exc))
        os._exit(0)

    def hear(self):
        assert self._ear.poll(DEADLINE), "the child says nothing"
        return self._ear.recv()

    def heard(self, within):
        """Whether it says anything in so many seconds."""
        return self._ear.poll(within)

    def end(self):
        """What it returned; raises what it raised."""
        how, what = self.hear()
        self.process.join(DEADLINE)
        if how == "raised":
            raise what
        return what

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join(DEADLINE)

    def frozen(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "T"

    def thaw(self):
        os.kill(self.process.pid, signal.SIGCONT)


def race(count, work):
    """``work(number)`` in so many processes at once -> what each returned, or the exception it raised."""
    start = FORK.Barrier(count)

    def run(number):
        def live(_):
            start.wait(DEADLINE)
            try:
                return work(number)
            except Exception as exc:
                return exc

        return live

    children = [Child(run(number)) for number in range(count)]
    return [child.end() for child in children]
