"""One log line and one signal for each thing that happens to a lock: task, digest, holder, and what was decided."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from celery_once_more import signals
from celery_once_more.exceptions import StoreUnavailable
from celery_once_more.locks import Answer, Holder, Lapsed, Waiting
from celery_once_more.ticket import Ticket

logger = logging.getLogger("celery_once_more")


def acquired(ticket: Ticket, phase: str, answer: Answer) -> None:
    reaped(answer.lapsed)
    logger.debug("task %s[%s]: lock %s taken, %s", ticket.task, ticket.task_id, ticket.digest, phase)
    _send(signals.lock_acquired, ticket, phase=phase, token=answer.token)


def released(ticket: Ticket, reason: str) -> None:
    freed(ticket.task, ticket.task_id, ticket.digest, reason)


def freed(task: str, task_id: str, digest: str, reason: str) -> None:
    logger.debug("task %s[%s]: lock %s freed: %s", task, task_id, digest, reason)
    signals.lock_released.send(sender=task, task_id=task_id, digest=digest, reason=reason)


def conflict(ticket: Ticket, holder: Holder, side: str, decision: str) -> None:
    logger.info("task %s[%s]: lock %s is held by %s, %s: %s",
                ticket.task, ticket.task_id, ticket.digest, holder.task_id, holder.phase, decision)  # fmt: skip
    _send(signals.lock_conflict, ticket, holder=holder.task_id, phase=holder.phase, side=side, decision=decision)


def rescheduled(ticket: Ticket, side: str, countdown_s: float, tries: int) -> None:
    logger.info("task %s[%s]: lock %s: asks for it again in %.1f s, for the %d. time",
                ticket.task, ticket.task_id, ticket.digest, countdown_s, tries)  # fmt: skip
    _send(signals.task_rescheduled, ticket, side=side, countdown=countdown_s, tries=tries)


def redelivered(ticket: Ticket, decision: str, why: str) -> None:
    logger.info("task %s[%s]: lock %s: one more delivery %s: %s", ticket.task, ticket.task_id, ticket.digest, why, decision)
    _send(signals.task_redelivered, ticket, decision=decision)


def lost(ticket: Ticket, reason: str) -> None:
    logger.warning("task %s[%s]: lock %s was lost: %s", ticket.task, ticket.task_id, ticket.digest, reason)
    _send(signals.lock_lost, ticket, reason=reason)


def reaped(lapsed: Iterable[Lapsed]) -> None:
    for holder in lapsed:
        if holder.phase == "kept":  # as it should be
            freed(holder.task, holder.task_id, holder.digest, "its period is over")
            continue
        logger.warning("task %s[%s]: lock %s lapsed while %s, and was freed",
                       holder.task, holder.task_id, holder.digest, holder.phase)  # fmt: skip
        signals.lock_reaped.send(sender=holder.task, task_id=holder.task_id, digest=holder.digest, phase=holder.phase)


def orphaned(waiting: Waiting) -> None:
    logger.warning("task %s[%s]: lock %s: its message is gone, and no worker knows of it: freed",
                   waiting.task, waiting.task_id, waiting.digest)  # fmt: skip
    signals.lock_reaped.send(sender=waiting.task, task_id=waiting.task_id, digest=waiting.digest, phase="waiting")


def unavailable(ticket: Ticket, act: str, error: StoreUnavailable, decision: str) -> None:
    logger.warning("task %s[%s]: lock %s: the lock store did not answer (%s): %s",
                   ticket.task, ticket.task_id, ticket.digest, error, decision)  # fmt: skip
    _send(signals.store_unavailable, ticket, act=act, error=error)


def _send(signal: Any, ticket: Ticket, **what: Any) -> None:
    signal.send(sender=ticket.task, task_id=ticket.task_id, digest=ticket.digest, **what)
