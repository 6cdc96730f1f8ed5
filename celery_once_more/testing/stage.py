"""Plays the scenarios: an undisturbed run, deaths and what follows them, a rival while the owner stands still.

Each starts from the user's ``setup`` with the clock of leases at zero, delivers until nothing is left to deliver, and ends
with a look at the user's ``state``. No process outlives its scenario.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from celery import Task, states

from celery_once_more.testing import messages
from celery_once_more.testing.clock import SharedClock
from celery_once_more.testing.points import Numbering, Point
from celery_once_more.testing.process import Process, Starter, Stop
from celery_once_more.testing.records import Life, Message
from celery_once_more.testing.scene import MOST_DELIVERIES, Scene

#: Windows has no such signal, nor processes that it would be sent to
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What the scenarios of one check have in common."""

    #: whether it can kill in the first delivery only
    first_only: ClassVar[bool] = False
    task: Task
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    setup: Callable[[], Any]
    #: a copy of what the user's ``state`` returns
    state: Callable[[], Any]
    #: seconds in which one scenario has to come to its end
    deadline_s: float
    clock: SharedClock
    #: errors with which a job says that a person has to look
    parked: tuple[type[BaseException], ...]
    #: where a message runs
    starter: Starter

    def undisturbed(self) -> Scene:
        with _Play(self) as play:
            play.settle([play.message])
        return play.scene

    def killed(self, *at: Point, again: Callable[[Message], Message | None]) -> Scene:
        """Kill the delivery that comes by the first of these places, then one that comes by the second, and let the rest settle.

        Args:
            again: what becomes of the message of a run that died; ``None``: nothing, it is lost.
        """
        with _Play(self, disturbances=len(at)) as play:
            waiting = [play.message]
            for point in at:
                dead = play.settle(waiting, Stop(identity=point.identity, signal=_KILL))
                if dead is None:
                    play.scene.reached = False
                    break
                message = again(dead.life.message)
                if message is None:
                    play.scene.lost = True
                    break
                waiting.insert(0, message)  # at the head of its queue; a retry that the dead had published is at the end
            play.settle(waiting)
        return play.scene

    def rivalled(self, point: Point) -> Scene:
        """Stop the owner at the place, let a second delivery of its message run to its end, and let the owner go on."""
        with _Play(self, disturbances=1) as play:
            waiting = [play.message]
            owner = play.settle(waiting, Stop(identity=point.identity, signal=signal.SIGSTOP))
            play.scene.reached = owner is not None
            if owner is not None:
                rival = play.start(replace(owner.life.message, redelivered=True))
                rival.wait(play.until, blocked=True)
                if not rival.over:
                    play.scene.notes.append("The rival waited for something that the owner holds, so the owner went on.")
                    owner.thaw()
                    rival.wait(play.until)
                play.settle(waiting + play.what_follows(rival.life))
                if owner.stopped:
                    owner.thaw()
                owner.wait(play.until)
                play.settle(play.what_follows(owner.life))
        return play.scene


class _Play:
    """One scenario in progress."""

    def __init__(self, stage: Stage, *, disturbances: int = 0) -> None:
        self.stage = stage
        self.scene = Scene(deadline_s=stage.deadline_s, most=MOST_DELIVERIES * (1 + disturbances))
        self.until = time.monotonic() + stage.deadline_s
        self._processes = ExitStack()

    def __enter__(self) -> _Play:
        stage = self.stage
        stage.clock.ahead_s = 0.0
        stage.setup()
        self.message = messages.first(stage.task, stage.args, stage.kwargs)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._processes.close()
        if kind is None:
            self.scene.state = self.stage.state()

    def start(self, message: Message, stop: Stop | None = None) -> Process:
        stage = self.stage
        stage.clock.ahead_s += message.countdown_s
        numbering = Numbering(delivery=len(self.scene.lives) + 1, earlier=self.scene.ended)
        process = stage.starter(stage.task, message, stage.clock, numbering, stop=stop, parked=stage.parked)
        self._processes.callback(process.close)
        self.scene.lives.append(process.life)
        return process

    def settle(self, waiting: list[Message], stop: Stop | None = None) -> Process | None:
        """Deliver these, and what they lead to, one after the other, until none is left, or one came to its stop: that one."""
        while waiting and not self.scene.trouble:
            process = self.start(waiting.pop(0), stop)
            process.wait(self.until)
            if process.stopped:
                return process
            waiting += self.what_follows(process.life)
            if process.life.died:
                return process
        return None

    def what_follows(self, life: Life) -> list[Message]:
        end = life.end
        back = [replace(life.message, redelivered=True)] if end and end.state == states.REJECTED and end.requeued else []
        return life.retries + back
