"""``UniqueTask``: what a task inherits to take part. Binding it to an app is the whole set-up."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from celery import Celery, Task, signals
from celery.exceptions import Reject
from celery.utils.imports import symbol_by_name

from celery_once_more import attach, carry, end, info, publish, queues, reaper, start, strict_args
from celery_once_more.again import again
from celery_once_more.info import LockInfo
from celery_once_more.options import Options
from celery_once_more.outgoing import Reentry, reentering, reentry
from celery_once_more.result import UniqueResult
from celery_once_more.run import EXEMPT, noted, run_of

#: by name: a publisher's process never loads Celery's worker
KEEPER = "celery_once_more.keeper:KeeperStep"
#: held by the thread that binds a task; a new one in a forked child, in which nobody would open the old one
_binding = [threading.RLock()]
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _binding.__setitem__(0, threading.RLock()))


class UniqueTask(Task):
    """A task whose calls exclude each other. With ``lock=None`` it is a plain Celery task."""

    #: name of a lock, or ``None``
    lock: str | None = None
    #: which arguments count: parameter names, a callable given the call's arguments, or all of them
    lock_args: Sequence[str] | Any = None
    #: a name that several tasks share to exclude each other; ``None``: the task's own
    lock_scope: str | None = None
    #: leave the queue out of the digest
    unique_across_queues: bool = False
    #: seconds; the period of ``until_expired``
    lock_ttl: float | timedelta | None = None
    #: seconds that a run, and a waiting message, keep the lock; ``None``: as the settings say
    lock_lease: float | timedelta | None = None
    lock_queue_lease: float | timedelta | None = None
    #: how many run at once; for ``while_executing``
    lock_limit: int = 1
    #: seconds that a publisher waits for a held lock before it counts as a duplicate
    lock_timeout: float | timedelta = 0
    #: what becomes of a duplicate: a strategy, or ``{"client": …, "server": …}``
    on_conflict: str | Mapping[str, str] | None = None
    #: seconds, for the strategy ``reschedule``
    reschedule_countdown: float | timedelta = 5
    #: ``"raise"`` or ``"proceed"`` where the lock store does not answer; ``None``: as the setting says
    on_outage: str | None = None
    #: refuse arguments that are not small primitives
    strict_args: bool = False

    #: the options above, checked and frozen; there once the task is bound
    once_more: Options
    #: what ``track_started`` was: STARTED is stored once the run was let in, not before
    once_more_track_started: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _refuse_in_body(cls)  # now: ``register_task`` takes ``run`` for its autoretry before it binds the task

    @classmethod
    def on_bound(cls, app: Celery) -> None:
        """Check the options and put the gate before the body.

        Raises:
            ConfigurationError: an option is wrong.
        """
        super().on_bound(app)
        with _binding[0]:
            cls._take_part(app)

    @classmethod
    def _take_part(cls, app: Celery) -> None:
        options = Options.of(cls)
        if cls.track_started:
            cls.track_started, cls.once_more_track_started = False, True
        _put_gate(cls)
        _connect(app)
        cls.once_more = options  # last: whoever sees it finds all the rest done

    @classmethod
    def _bound(cls) -> Celery:
        """The app, to which this task is bound now, if it was not until now. Celery says of a task that it is bound while
        another thread is about to bind it.

        Raises:
            ConfigurationError: an option is wrong.
        """
        app = cls._get_app()
        if "once_more" not in vars(cls):
            with _binding[0]:
                if "once_more" not in vars(cls):
                    cls._take_part(app)
        return app

    def apply_async(self, args: Any = None, kwargs: Any = None, task_id: str | None = None, **options: Any) -> Any:
        """As Celery's, but for a duplicate: its caller gets the holder's result, or what ``on_conflict`` says.

        Raises:
            LockConflict: it is a duplicate, and the strategy is ``raise``.
            ArgumentsError: an argument that counts has no stable JSON form, or ``strict_args`` refuses one; nothing is published
                or locked.
            ConfigurationError: an option given with the call is wrong.
            StoreUnavailable: the lock store did not answer, and ``on_outage`` is ``raise``.
        """
        self._bound()
        ours, message = self.once_more.for_call(self, options)

        def send(**more: Any) -> Any:
            return super(UniqueTask, self).apply_async(args, kwargs, **more)

        if ours.strict and not carry.is_own_message(task_id):
            strict_args.check(self, args, kwargs, task_id, message)
        plain = ours.lock is None and self.once_more.lock is None and reentry() is None
        if plain or self.app.conf["task_always_eager"]:
            return send(task_id=task_id, **message)
        return publish.publish(self, ours, send, args, kwargs, task_id, message)

    def once_more_check(self, args: Any, kwargs: Any, options: Mapping[str, Any]) -> None:
        """Raise what ``apply_async`` would refuse of this call by itself; nothing is locked or sent, no service is asked.

        Raises:
            ArgumentsError, ConfigurationError: as ``apply_async``; also where a setting of the lock store is wrong.
        """
        self._bound()
        ours, message = self.once_more.for_call(self, dict(options))
        if ours.strict:
            strict_args.check(self, args, kwargs, message.get("task_id"), message)
        if ours.lock is not None and not self.app.conf["task_always_eager"]:
            publish.check(self, ours, args, kwargs, {name: value for name, value in message.items() if name != "task_id"})

    def retry(self, *args: Any, throw: bool = True, **options: Any) -> Any:
        """As Celery's; the retry carries the lock on."""
        try:
            with reentering(self._as_retry(body_goes_on=not throw)):
                return super().retry(*args, throw=throw, **options)
        except Reject as exc:
            if isinstance(exc.reason, carry.RunOutlived):
                raise exc.reason from None
            raise

    def once_more_again(self, countdown: float) -> None:
        """Publish the message of this run once more; it carries the lock on, and no retry is counted."""
        with reentering(self._as_retry()):
            again(self, countdown).apply_async()

    def _as_retry(self, *, body_goes_on: bool = False) -> Reentry:
        request = self.request
        exempt = noted(request) is EXEMPT and self.once_more.lock is not None
        return Reentry("retry", request.id, run_of(request), body_goes_on=body_goes_on, exempt=exempt)

    def replace(self, sig: Any) -> Any:
        """As Celery's; one signature with the digest of this run carries the lock on."""
        request = self.request
        with reentering(Reentry("replace", request.id, run_of(request))):
            return super().replace(sig)

    def signature_from_request(self, request: Any = None, *args: Any, queue: Any = None, **options: Any) -> Any:
        """As Celery's, but a message that came through an exchange goes to its own queue again, also where that delays it."""
        request = self.request if request is None else request
        signature = super().signature_from_request(request, *args, queue=queue, **options)
        if self.once_more.lock is None and run_of(request) is None:
            return signature
        if queue is None and not {"exchange", "routing_key"} & options.keys():
            signature.options.update(queues.way_back(self.app, request.delivery_info or {}))
        return signature

    def lock_info(self, *args: Any, **kwargs: Any) -> LockInfo | None:
        """Who holds the lock of a call with these arguments, on the queue that it would go to.

        Raises:
            ConfigurationError: the task has no lock.
            ArgumentsError, TypeError: the call has no digest.
            StoreUnavailable: the lock store did not answer.
        """
        self._bound()
        return info.lock_info(self, args, kwargs)

    def release_lock(self, info_: LockInfo, /) -> bool:
        """Free exactly the holder that :meth:`lock_info` saw; ``False`` where it is not any more as it was seen.

        Raises:
            StoreUnavailable: the lock store did not answer.
        """
        self._bound()
        return info.release_lock(self, info_)

    def AsyncResult(self, task_id: str, *, duplicate: bool = False, **kwargs: Any) -> UniqueResult:  # noqa: N802
        app = self._bound()
        result = UniqueResult(task_id, backend=self.backend, task_name=self.name, app=app, **kwargs)
        result.duplicate = duplicate
        return result

    def start_strategy(self, app: Celery, consumer: Any, **kwargs: Any) -> Any:
        """Called by a worker once per task: its requests learn to see the ends that a child cannot tell of."""
        from celery_once_more.worker import request_class  # not in a publisher's process

        base: Any = self.Request
        self.Request: Any = request_class(symbol_by_name(base))
        return super().start_strategy(app, consumer, **kwargs)

    def once_more_signature(self) -> inspect.Signature:
        """How a call of this task is bound to names."""
        cached: inspect.Signature | None = vars(type(self)).get("_once_more_signature")
        if cached is None:
            cached = inspect.signature(self.run)
            type(self)._once_more_signature = cached
        return cached


def _put_gate(cls: type[UniqueTask]) -> None:
    """Wrap what the tracer calls, once per class: a class that inherits a wrapped method is behind the gate already."""
    if not getattr(cls.before_start, "once_more_gate", False):
        guarded = start.guard(cls.before_start)
        guarded.once_more_gate = True  # type: ignore[attr-defined]
        cls.before_start = guarded
    _refuse_in_body(cls)


def _refuse_in_body(cls: type[UniqueTask]) -> None:
    if not getattr(cls.run, "once_more_gate", False):
        refusing = start.refusing(cls.run)
        refusing.once_more_gate = True  # type: ignore[attr-defined]
        static = isinstance(inspect.getattr_static(cls, "run"), staticmethod)
        cls.run = staticmethod(refusing) if static else refusing


def _connect(app: Celery) -> None:
    """The receivers of Celery's signals, the keeper and the reap task; again and again without harm."""
    for name, receiver in (
        ("before_task_publish", attach.before_publish),
        ("task_prerun", start.ask),
        ("task_postrun", end.after_run),
    ):
        getattr(signals, name).connect(receiver, weak=False, dispatch_uid=f"celery_once_more.{name}")
    if not vars(app).get("_once_more_installed"):
        app._once_more_installed = True
        app.steps["worker"].add(KEEPER)
        app.send_task = attach.watched(app, app.send_task)
        # Celery 5.6 looks once, at an app's first publish, whether anybody listens to the signal of a publish
        vars(vars(app).get("amqp", app)).pop("send_task_message", None)
        if reaper.TASK_NAME not in app._tasks:
            reaper.register(app)
