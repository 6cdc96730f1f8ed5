"""What Celery does with the message of a run whose process died: a table over who died and the options of the task.

It holds for a run that was in the task's body, on a broker that keeps what was not acknowledged. That the message was a
redelivery already changes nothing: Celery redelivers without a limit. A quorum queue of RabbitMQ has one of its own.
A child that dies before its main process has read that it started is a case apart: the message goes to the next child.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import celery

#: ``child``: a process of the pool alone; ``machine``: the worker's main process with it, as a container's end does
Death = Literal["child", "machine"]
#: ``redelivered``: the same message; ``retried``: a new message with the same task id and one retry more
Kind = Literal["redelivered", "retried", "lost"]


@dataclass(frozen=True, kw_only=True)
class Fate:
    kind: Kind
    #: one sentence, with the option that would change it where the message is lost
    why: str


@dataclass(frozen=True, kw_only=True)
class Options:
    """What decides, as the installed Celery reads it from a task."""

    acks_late: bool
    reject_on_worker_lost: bool
    #: Celery 5.6 knows it as ``acks_on_failure_or_timeout``
    acks_on_failure: bool
    #: Celery 5.7 and later
    retry_on_worker_lost: bool
    #: ``None``: without end
    max_retries: int | None

    @classmethod
    def of(cls, task: Any) -> Options:
        """An option that this Celery does not know decides nothing, though a task may bear it."""
        ack = "acks_on_failure" if _knows("acks_on_failure") else "acks_on_failure_or_timeout"
        return cls(
            acks_late=bool(task.acks_late),
            reject_on_worker_lost=bool(task.reject_on_worker_lost),
            acks_on_failure=bool(getattr(task, ack)),
            retry_on_worker_lost=_knows("retry_on_worker_lost") and bool(task.retry_on_worker_lost),
            max_retries=task.max_retries,
        )


def fate(task: Any, death: Death, *, retries: int = 0) -> Fate:
    """What becomes of the message when its run dies.

    Args:
        task: bound to its app, so that the settings count.
        retries: how many the message has behind it.
    """
    return decide(Options.of(task), death, retries=retries)


def decide(options: Options, death: Death, *, retries: int = 0) -> Fate:
    if death == "machine":
        return _machine(options)
    used_up = options.max_retries is not None and retries >= options.max_retries
    if options.retry_on_worker_lost and not used_up:
        return Fate(kind="retried", why="retry_on_worker_lost is on: the worker's main process publishes a retry")
    if not options.acks_late:
        if options.retry_on_worker_lost:
            return _lost(f"{_used_up(options)}, and acks_late is off: the message was acknowledged before the run")
        return _lost(f"acks_late is off: the message was acknowledged before the run; {_REMEDY} would bring it back")
    if options.retry_on_worker_lost:  # reject_on_worker_lost does not count then
        return _lost(f"{_used_up(options)}, and then Celery gives the message up, whatever reject_on_worker_lost says")
    if options.reject_on_worker_lost:
        return Fate(kind="redelivered", why="acks_late and reject_on_worker_lost are on: Celery gives the message back")
    if options.acks_on_failure:
        return _lost("reject_on_worker_lost is off: Celery acknowledges the message of a lost process, as after any failure; "
                     "reject_on_worker_lost=True would bring it back")  # fmt: skip
    return _lost("reject_on_worker_lost and acks_on_failure are off: Celery rejects the message of a lost process for good; "
                 "reject_on_worker_lost=True would bring it back")  # fmt: skip


#: for a child's death
_REMEDY = "acks_late=True with reject_on_worker_lost=True"


def _machine(options: Options) -> Fate:
    if options.acks_late:
        why = "acks_late is on: the message was not acknowledged yet, and the broker delivers it again"
        return Fate(kind="redelivered", why=why)
    if options.retry_on_worker_lost:
        return _lost("acks_late is off: the message was acknowledged before the run, and nobody is left to publish the retry of "
                     "retry_on_worker_lost; acks_late=True would bring it back")  # fmt: skip
    return _lost("acks_late is off: the message was acknowledged before the run; acks_late=True would bring it back")


def _lost(why: str) -> Fate:
    return Fate(kind="lost", why=why)


def _used_up(options: Options) -> str:
    return f"the retries of retry_on_worker_lost are used up (max_retries={options.max_retries})"


def _knows(option: str) -> bool:
    """Whether the installed Celery's own task has it."""
    return hasattr(celery.Task, option)
