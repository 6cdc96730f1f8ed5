"""A run's own publishes carry its lock on: a retry, a replacement by the same call, a message put off."""

from __future__ import annotations

from typing import Any

from celery.exceptions import Ignore

from celery_once_more import report
from celery_once_more.call import HANDOVER_MS, Call
from celery_once_more.exceptions import StoreUnavailable
from celery_once_more.outgoing import Reentry, reentry
from celery_once_more.run import Run
from celery_once_more.ticket import Ticket


class RunOutlived(Ignore):
    """A retry of a run that has no say any more: a newer run of its call lives, or its call is over."""


def is_own_message(task_id: str | None) -> bool:
    """Whether what is about to be published is a retry, or a message put off: the same call, as it was checked before."""
    again = reentry()
    return again is not None and again.why != "replace" and again.task_id == task_id


def carry_on(call: Call, again: Reentry) -> Any:
    """A retry, or a message put off: the same call, in its next or in the same message."""
    if again.why == "put off":
        return call.publish(again.ticket, exempt=again.exempt, tries=again.tries)
    run = again.run
    ticket = run.retry_ticket if run is not None else None
    if run is None or ticket is None:
        return call.publish(None, exempt=again.exempt)
    if again.body_goes_on:
        hop = (run.next_hop or ticket.hop) + 1
        result = call.publish(ticket.at_hop(hop))
        run.next_hop = hop
        return result
    return move_on(call, ticket, run)


def move_on(call: Call, ticket: Ticket, run: Run) -> Any:
    """Requeue, publish, confirm: at every moment either message of the call is good, and one of them is in the broker."""
    following = ticket.at_hop(ticket.hop + 1)
    moved = (run.holds or run.waits) and _requeue(call, ticket, run, following)
    result = call.publish_or_release(following)
    if moved:
        rt = call.runtime
        try:
            rt.store.confirm(ticket, hop=following.hop, wait_ms=rt.wait_ms(run.options, call.eta_s, call.expires_s))
        except StoreUnavailable as exc:
            report.unavailable(ticket, "confirm", exc, "both of its messages stay good")
    elif run.holds:
        run.next_hop = following.hop
    return result


def _requeue(call: Call, ticket: Ticket, run: Run, following: Ticket) -> bool:
    """The lock waits for the next message; ``False``: the store did not answer, and the end of the run asks it once more."""
    try:
        if call.runtime.store.requeue(ticket, run=run.run_id if run.holds else "", hop=following.hop, wait_ms=HANDOVER_MS,
                                      place=call.place(ticket)):  # fmt: skip
            run.left = True
            return True
    except StoreUnavailable as exc:
        report.unavailable(ticket, "requeue", exc, "its next message is published all the same")
        return False
    run.left = True
    report.lost(ticket, "its retry is put off as the message that it has, another run goes on")
    # that run may be the one without a message in the broker; at its start this one is told busy, done, or run
    call.publish(ticket)
    raise RunOutlived(f"lock {ticket.digest} was lost")
