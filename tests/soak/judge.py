"""Everything that is known of a soak, put before the claims: which of them are broken, what is excused, what was counted."""

import json

from soak import verdict
from soak.handovers import Handovers
from soak.report import by_kind
from soak.story import Story
from soak.timing import QUEUE_LEASE, VISIBILITY_TIMEOUT

#: seconds in which everything must have come to rest
REST = QUEUE_LEASE + 10 * VISIBILITY_TIMEOUT


def judge(soak):
    """Fill its report."""
    floor, calls, report = soak.floor, [call.id for call in soak.admitted], soak.report
    story, results, handovers = Story.of(floor.witness.events()), _results(soak), Handovers(floor.ledger)
    messages = floor.broker.waiting() + floor.broker.unacknowledged()
    lost = handovers.lost({m["properties"]["delivery_tag"] for m in messages}, floor.connections(), story.faults)
    overwritten = verdict.overwritten(story, results, floor.ledger.stored)
    results.update(overwritten)
    hung = [f"{event['worker']} did not end after {event['how']}" for event in story.hung]
    claims = {
        "every fault was applied, and its worker came back; none ended by itself, or did not end": [*soak.failed, *hung],
        "no receiver of a signal raised, and no keeper stumbled": floor.said_wrong(),
        "no run enters beside another, or else a lease could lapse, and the older one is told": verdict.overlaps(story),
        "no call is let in beside one that has its lock": verdict.admitted_beside(
            story, soak.admitted, lost, handovers.delivered_twice()
        ),
        "nothing runs again that had come to its end": verdict.runs_again(story),
        "a publish raises in an outage only, and then does not run": verdict.outages(story, soak.refused),
        "each message is somewhere, but where a connection that was cut took it along": verdict.lost_without_a_cause(lost),
        "each call that was admitted ends, as its last run did": verdict.endings(story, calls, results, lost),
        "each holder that a duplicate was handed ends": verdict.handed_over(soak.duplicates, calls, story.never_sent, results),
        "no waiting lock is freed as an orphan whose message then runs, but where its worker was silent for a lease":
            verdict.freed_wrongly(story, soak.admitted, lost, handovers.in_between),
        f"all locks are free, and the broker empty, within {REST} s (a killed publisher's lock would wait for a day)": soak.left,
    }  # fmt: skip
    report.claims = {claim: list(broken) for claim, broken in claims.items()}
    report.excused = [*_lost(lost, results), *(f"Celery stored RETRY over the result of {call}" for call in sorted(overwritten))]
    report.counts = _counts(soak, story)


def _results(soak):
    client = soak.floor.broker_server.client(1)
    ids = sorted({call.id for call in soak.admitted} | {holder for _, holder in soak.duplicates})
    found = {}
    for task_id, raw in zip(ids, client.mget([f"celery-task-meta-{i}" for i in ids]) if ids else [], strict=True):
        if raw:
            meta = json.loads(raw)
            found[task_id] = meta["status"], meta["result"]
    return found


def _lost(lost, results):
    for loss in lost.values():
        if loss.cause:
            status = results.get(loss.task_id, ("PENDING",))[0]
            then = f"ended as {status} all the same" if status in verdict.FINAL else "never ended"
            yield f"kombu lost the message of {loss.task_id} between its queue and unacked, by '{loss.cause}': the call {then}"


def _counts(soak, story):
    runs, orphans = story.runs.values(), story.orphans
    return {
        "Published": {
            "calls": len(soak.admitted) + len(soak.duplicates) + len(soak.refused),
            "admitted": len(soak.admitted),
            "duplicates": len(soak.duplicates),
            "refused, since a service was away": len(soak.refused),
        },
        "Runs": {
            "in all": len(runs),
            "of a message that was delivered again": sum(run.redelivered for run in runs),
            "that took over from a dead one": sum(bool(run.met) and not run.met_alive for run in runs),
            "that took over from a live one that had stood still": sum(run.met_alive for run in runs),
            "late writes refused": sum(run.left is not None and not run.written for run in runs),
        },
        "Runs by their outcome": by_kind(run.outcome for run in runs),
        "Faults": by_kind(soak.applied),
        "Faults that found nobody": by_kind(soak.missed),
        "The reaper": {
            "locks of publishers that were killed before they sent their message": len(story.never_sent),
            "waiting locks freed, since nobody had their message": len(orphans),
            "of these, whose message ran after all": sum(
                any(run.entered > orphan.since for run in story.of_call(orphan.task_id)) for orphan in orphans
            ),
        },
    }
