"""The main process of a worker that was forked from a test: cut off from what the test had open, else a worker as any other."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from celery import Celery, platforms
from celery.app.log import Logging
from celery.worker import state
from kombu.asynchronous import set_event_loop
from kombu.entity import Queue

from celery_once_more.testing.deliveries import Orders
from celery_once_more.testing.inherited import cut_inherited_sockets
from celery_once_more.testing.telling import Teller, Watch


@dataclass(frozen=True, kw_only=True)
class Birth:
    """What the worker is given at its fork."""

    app: Celery
    queue: Queue
    orders: Orders
    watch: Watch
    #: drops what the test's process had open, and Celery does not know of
    forget: Callable[[], None]
    #: writes to the test
    writer: int
    #: at its end when the test's process is
    leash: int
    log: int


def live(birth: Birth) -> NoReturn:
    """The main process of the worker, from its fork to its end."""
    status = 1
    try:
        os.setsid()
        _die_with_the_test(birth.leash)
        _speak_to(birth.log)
        cut_inherited_sockets()
        birth.forget()
        _as_never_run(birth.app)
        _settings(birth.app, birth.queue)
        teller = Teller(birth.app, birth.orders, birth.watch, birth.writer)
        teller.listen()
        worker = birth.app.Worker(
            hostname=birth.queue.name, pool="prefork", concurrency=1, prefetch_multiplier=1, queues=[birth.queue.name],
            loglevel="INFO", quiet=True, redirect_stdouts=False, without_gossip=True, without_mingle=True,
            without_heartbeat=True,
        )  # fmt: skip
        worker.start()
        status = worker.exitcode or 0
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _die_with_the_test(leash: int) -> None:
    """With its whole group, however the test's process ends; Celery sees to the same for its pool's children."""
    platforms.set_pdeathsig("SIGKILL")

    def wait() -> None:
        os.read(leash, 1)  # nobody ever writes: it returns when nobody can any more
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, name="celery-once-more-leash", daemon=True).start()


def _speak_to(log: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, into in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, into)
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", buffering=1, closefd=False)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", buffering=1, closefd=False)  # type: ignore[misc]


def _as_never_run(app: Celery) -> None:
    """Nothing is left of a worker that may have run inside the test's process, nor of the handlers that the test put in."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    set_event_loop(None)
    state.reset_state()
    state.should_stop = state.should_terminate = None
    Logging._setup = False
    app.set_current()
    app.set_default()


def _settings(app: Celery, queue: Queue) -> None:
    own = {f"{key}_key": f"{queue.name}.{key}" for key in UNACKED}
    app.conf.update(
        # in Redis, the messages of other workers are not this one's to give back
        broker_transport_options={**(app.conf.broker_transport_options or {}), **own},
        broker_connection_retry_on_startup=False,
        worker_enable_remote_control=False,
        worker_direct=False,
        worker_state_db=None,
        worker_hijack_root_logger=True,
        worker_pool_start_method="fork",
    )
    app.amqp.queues[queue.name] = queue  # not by add(), which would bind it to the exchange of the user's own


#: kombu's names of what is delivered and not acknowledged
UNACKED = ("unacked", "unacked_index", "unacked_mutex")
