"""A run in a child process that can really be killed, or stand still, at a place of its own."""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from celery import Task, platforms

from celery_once_more.testing import running
from celery_once_more.testing.clock import SharedClock
from celery_once_more.testing.instruments import forget_connections, load
from celery_once_more.testing.points import Numbering, Point
from celery_once_more.testing.process import Stop
from celery_once_more.testing.records import Life, Message, line, uncaught
from celery_once_more.testing.watching import Places

#: seconds between two looks at a child that says nothing
LOOK_S = 0.01
#: seconds without a word after which a process that does not compute counts as waiting for somebody
QUIET_S = 0.2


class _Teller(Places):
    """The watcher in the child: tells of each place before anything happens there."""

    def __init__(self, write: Callable[[bytes], Any], stop: Stop | None, clock: SharedClock, numbering: Numbering) -> None:
        super().__init__(stop.identity if stop is not None else None, numbering)
        self._write, self._stop, self._clock = write, stop, clock

    def tell(self, point: Point) -> None:
        self._write(line("point", point))

    def stop(self) -> None:
        assert self._stop is not None
        self._write(line("stopped"))
        os.kill(os.getpid(), self._stop.signal)

    def ahead_s(self) -> float:
        return self._clock.ahead_s


class Forked:
    """One life in a child process; :meth:`wait` until it is over, and :meth:`close` in any case."""

    def __init__(self, task: Task, message: Message, clock: SharedClock, numbering: Numbering, *, stop: Stop | None = None,
                 parked: running.Parked = ()) -> None:  # fmt: skip
        self.life = Life(message=message)
        self.stopped = False
        self.over = False
        self._buffer = b""
        self._at_its_place = False
        self._heard = time.monotonic()
        load()
        sys.stdout.flush()
        sys.stderr.flush()
        self._reader, writer = os.pipe()
        parent = os.getpid()
        with warnings.catch_warnings():  # Python 3.12 warns where a thread lives, such as a far side's
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _end_with(parent)
            _live(task, message, _Teller(lambda told: _write(writer, told), stop, clock, numbering), writer, parked)
        os.close(writer)

    def wait(self, until: float, *, blocked: bool = False) -> None:
        """Listen until the child is over or stands still.

        Args:
            until: ``time.monotonic()`` at which it counts as hung.
            blocked: return as well when it seems to wait for somebody else.
        """
        while not self.over and not self.stopped:
            if time.monotonic() > until:
                self.life.hung = True
                return
            if blocked and time.monotonic() > self._heard + QUIET_S and self._sleeps():
                return
            self._listen()
            self._look()

    def thaw(self) -> None:
        self.stopped = False
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End what is left of it, its own children included."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        if not self.over:
            os.kill(self.pid, signal.SIGKILL)  # one that was interrupted at its very start has no group yet
            os.waitpid(self.pid, 0)
            self.over = True
        os.close(self._reader)

    def _listen(self) -> None:
        if select.select([self._reader], [], [], LOOK_S)[0]:
            self._read()

    def _read(self) -> bool:
        data = os.read(self._reader, 65536)
        if not data:
            time.sleep(LOOK_S / 10)  # it is about to end
            return False
        self._heard = time.monotonic()
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for told in lines:
            self._at_its_place = self.life.read(told) == "stopped"
        return True

    def _look(self) -> None:
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return
        while select.select([self._reader], [], [], 0)[0] and self._read():
            pass
        if os.WIFSTOPPED(status):
            self.stopped = True
            self.life.frozen_at = len(self.life.points)
        else:
            self.over = True
            self.life.died = os.WIFSIGNALED(status) and self._at_its_place
            if not self.life.died and self.life.end is None and not self.life.trouble:
                self.life.trouble = _unasked(status)

    def _sleeps(self) -> bool:
        """It waits in the kernel: for a lock of the database, an answer, a sleep; ``True`` where that cannot be told."""
        try:
            with open(f"/proc/{self.pid}/stat") as stat:
                return stat.read().rpartition(") ")[2].startswith("S")
        except OSError:
            return True


def _unasked(status: int) -> str:
    """How a process ended that nobody had ended."""
    if os.WIFSIGNALED(status):
        return f"died of {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended its process with status {os.WEXITSTATUS(status)}"


def _end_with(parent: int) -> None:
    """Also where that is killed and can end nothing itself. Children of the run are not meant: they are ended with its group."""
    platforms.set_pdeathsig("SIGKILL")
    if os.getppid() != parent:  # it was faster
        os._exit(1)


def _live(task: Task, message: Message, teller: _Teller, writer: int, parked: running.Parked) -> None:
    """The child's whole life; does not return."""
    try:
        os.setpgid(0, 0)
        gc.freeze()  # a collection would touch, and so copy, all of the parent's memory; and might end what is the parent's
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        forget_connections()
        end = running.run(task, message, teller, lambda sent: _write(writer, line("retry", sent)), parked)
        _write(writer, line("end", end))
    except BaseException as exc:
        _write(writer, line("trouble", uncaught(exc)))
    finally:
        os._exit(0)


def _write(writer: int, told: bytes) -> None:
    while told:
        told = told[os.write(writer, told) :]
