"""Plays the scenarios on a real prefork worker of the task's own app: locks, results and redelivery are Celery's and ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from celery import Task, states

from celery_once_more import crash
from celery_once_more.testing import messages
from celery_once_more.testing.deliveries import Delivery, Run
from celery_once_more.testing.instruments import forget_connections, returned, watch_all
from celery_once_more.testing.points import Numbering, Point
from celery_once_more.testing.records import End, Life, Message
from celery_once_more.testing.scene import Scene
from celery_once_more.testing.telling import PoolRun
from celery_once_more.testing.watching import Places
from celery_once_more.testing.worker import PreforkWorker


class WorkerStage:
    """As :class:`Stage`, for deaths of a pool child; one worker for all of them, until :meth:`close`."""

    first_only = True

    def __init__(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any], *, setup: Callable[[], Any],
                 state: Callable[[], Any], deadline_s: float, parked: tuple[type[BaseException], ...]) -> None:  # fmt: skip
        self.task = task
        self._args, self._kwargs = args, kwargs
        self._setup, self._state = setup, state
        self._deadline_s = deadline_s
        self._parked = {error.__name__ for error in parked}
        self._worker = PreforkWorker(task.app, watch=self._watch, deadline_s=deadline_s, forget=self._prepare)

    def close(self) -> None:
        self._worker.close()

    def undisturbed(self) -> Scene:
        return self._play(None)

    def killed(self, *at: Point, again: Callable[[Message], Message | None]) -> Scene:
        """Kill the pool child of the first delivery there; what follows is Celery's own doing."""
        (point,) = at
        scene = self._play(point)
        scene.reached = bool(scene.lives) and scene.lives[0].died
        return scene

    def rivalled(self, point: Point) -> Scene:
        raise NotImplementedError("refused before: a worker's pool child is not stopped")

    def _play(self, point: Point | None) -> Scene:
        self._setup()
        arm = list(point.identity) if point is not None else None
        delivery = self._worker.deliver(self.task, self._args, self._kwargs, arm=arm)
        return Scene(deadline_s=self._deadline_s, lives=self._lives(delivery), state=self._state())

    def _lives(self, delivery: Delivery) -> list[Life]:
        message = messages.first(self.task, self._args, self._kwargs)
        lives = [self._life(message, run) for run in delivery.runs] or [Life(message=message)]
        lives[-1].trouble = delivery.trouble
        return lives

    def _life(self, message: Message, run: Run) -> Life:
        headers = {**message.headers, "retries": run.retries}
        of_run = Message(**{**asdict(message), "headers": headers, "redelivered": run.redelivered})
        life = Life(message=of_run, points=[Point(**told) for told in run.told], died=run.fate is not None)
        if not life.died:
            parked = run.error.partition(":")[0] in self._parked
            life.end = End(state=run.state or states.SUCCESS, error=run.error, parked=parked, requeued=run.requeued)
        return life

    def _prepare(self) -> None:
        """In the worker, before it forks its pool."""
        forget_connections()
        self._body = returned(self.task)
        self._body.__enter__()  # for as long as the worker lives: its tracer takes the body as it finds it

    @contextmanager
    def _watch(self, run: PoolRun) -> Iterator[crash.Watcher]:
        with watch_all(self.task.app):
            yield _PoolTeller(run)


class _PoolTeller(Places):
    """The watcher in the pool child."""

    def __init__(self, run: PoolRun) -> None:
        super().__init__(tuple(run.arm) if run.arm else None, Numbering())
        self._run = run

    def tell(self, point: Point) -> None:
        self._run.tell(asdict(point))

    def stop(self) -> None:
        self._run.die()
