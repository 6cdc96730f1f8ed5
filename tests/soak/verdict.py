"""What the soak claims, judged after the last fault: from the witness's events, the results, the lock store and the broker."""

from soak.faults import HARMLESS
from soak.timing import LEASE, QUEUE_LEASE, STALLED

FINAL = ("SUCCESS", "FAILURE", "REVOKED")
#: outcomes of a run that came to its end
ENDED = ("succeeds", "fails", "retries", "is replaced")
#: seconds around the end of a run in which what befalls its worker or the lock store may keep that end from being remembered
AROUND_THE_END = (-0.5, 2.0)


def overlaps(story):
    """A run that entered while another was inside, and the older one's lease cannot have lapsed, or it was not told."""
    for run in story.runs.values():
        other = story.runs.get(run.met)
        if other is None or not (run.refused or run.met_alive):
            continue
        older = min(run, other, key=lambda each: each.token)  # one that stands still before it enters comes too late: refused
        told = older.asked or 0
        if run.token == other.token:
            yield f"{run} has the token of {other}"
        elif not story.may_have_lapsed(older, run.entered):
            yield f"{run} met {other}, and neither the worker of {older.n} nor the lock store had stood still"
        elif older.held and told > run.entered:
            yield f"{run} met {other}, and then {older.n} was told that it held its lock"


def admitted_beside(story, admitted, lost, delivered_twice=()):
    """A publish that was let in while a call like it surely waited, or waited or ran, and nothing had befallen that one."""
    orphaned = {orphan.task_id for orphan in story.orphans}  # rightly or not: ``freed_wrongly`` says
    for call in admitted:
        if call.lock == "while_executing" or call.id in orphaned | lost.keys() | story.revoked:
            continue
        runs = story.of_call(call.id)
        if not runs:
            continue
        kept = call.lock == "until_executed" and all(run.outcome in ENDED for run in runs)
        until = max(run.left for run in runs) if kept else min(run.started for run in runs)
        if call.id in delivered_twice and story.killed_somebody(call.asked, until):
            continue  # in a run that had its lock, and did not get as far as the witness
        if until - call.answered > QUEUE_LEASE or story.store_failed(call.asked, until):
            continue
        for other in admitted:
            beside = (other.lock, other.key) == (call.lock, call.key) and other.id != call.id
            if beside and call.answered < other.asked and other.answered < until:
                yield f"{other} was let in beside {call}, which had its lock until {until}: {runs}"


def runs_again(story):
    """A run of a call, or of a step of a call, that had come to its end, and nothing had kept that from being remembered."""
    for run in story.runs.values():
        if run.outcome not in ENDED or not run.written:
            continue
        since, until = (run.left + seconds for seconds in AROUND_THE_END)
        befell = any(fault.begun < until and fault.over > since and fault.victim in (None, run.worker)
                     for fault in story.faults if fault.kind not in HARMLESS)  # fmt: skip
        over = run.outcome in ("succeeds", "fails")
        # until its retry is known to be in the broker, the message of a run that retries is good, too: a copy of it may start
        after = run.left if over else until
        later = [other for other in story.of_call(run.task_id) if other.entered > after and (over or other.step == run.step)]
        if later and not befell and not story.store_failed(since, later[0].entered) and not story.may_have_lapsed(run, until):
            yield f"{later[0]} began, although {run} had ended"


def outages(story, refused):
    """A publish that raised, though every service was there; or one that raised for the lock store, and ran all the same."""
    for call, asked, failed, error in refused:
        dropped = any(fault.kind.startswith("drop") and fault.begun < failed and fault.over > asked - 1 for fault in story.faults)
        if not story.store_failed(asked - 1, failed) and not dropped:
            yield f"the publish of {call} raised {error}, and nothing had happened"
        if error.startswith("StoreUnavailable") and story.of_call(call):
            yield f"the publish of {call} raised {error}, and it ran: {story.of_call(call)}"


def overwritten(story, results, stored):
    """Calls whose last run, or whose revocation, was stored, and then Celery stored, over that, that the run before is to be
    retried."""
    found = {}
    for call in [call for call, (status, _) in results.items() if status == "RETRY"]:
        *_, before, last = [("", ""), ("", ""), *stored(call)]
        runs = story.of_call(call)
        told = (call in story.revoked and before[0] == "REVOKED") or (runs and _tells(runs[-1], *before))
        if last[0] == "RETRY" and before[0] in FINAL and told:
            found[call] = before
    return found


def lost_without_a_cause(lost):
    """A message that is in no queue and in nobody's hands, though no connection ended that could have taken it along."""
    for loss in lost.values():
        if not loss.cause:
            yield f"the message of {loss.task_id}, put into its queue at {loss.put}, is gone, and no fault took it"


def handed_over(duplicates, calls, never_sent, results):
    """Holders whom a duplicate was handed, and who were never admitted: their results end all the same."""
    for holder in sorted({holder for _, holder in duplicates} - set(calls) - never_sent):
        if results.get(holder, ("PENDING",))[0] not in FINAL:
            yield f"a duplicate was handed {holder}, which ended as {results.get(holder)}"


def freed_wrongly(story, admitted, lost, in_between):
    """An orphan was freed, and its message ran after all; unless nobody could have told.

    That is so while its publish is under way, after kombu has lost it (what ran was a copy), and while it stands in what the
    broker answered to a worker that was silent for too long to count as alive.
    """
    published = {call.id: call for call in admitted}
    for orphan in story.orphans:
        call, begun = published.get(orphan.task_id), [r for r in story.of_call(orphan.task_id) if r.entered > orphan.since]
        sending = call is not None and call.asked < orphan.until and call.answered > orphan.since
        hidden = not orphan.there and in_between(orphan.task_id, orphan.since, orphan.until)
        silent = orphan.task_id in lost or story.somebody_stalled(orphan.since - 2 * LEASE, orphan.until) > STALLED
        if begun and not sending and not (hidden and silent):
            yield f"{orphan} was freed, and ran: {begun}"


def endings(story, calls, results, lost):
    """Calls that were admitted: each ended, with the outcome of its last run."""
    for call in calls:
        status, value = results.get(call, ("PENDING", None))
        runs = story.of_call(call)
        if (call in lost and lost[call].cause and status not in FINAL) or (call in story.revoked and status in FINAL):
            continue
        if status not in FINAL:
            yield f"{call} ended as {status}: {runs}"
        elif not runs:
            yield f"{call} never ran, and ended as {status} {value}"
        elif not any(_tells(run, status, value) for run in _last(story, runs)):
            yield f"{call} ended as {status} {value}, which is not what its last run did: {runs}"


def _last(story, runs):
    """Those that may have had the last word: the last one that ended; those that overlapped it, or whose worker stood still after
    them until it had begun, before their result was stored; and each success, since Celery overwrites no stored success."""
    ended = sorted((run for run in runs if run.left is not None), key=lambda run: run.left)
    return [run for run in ended if run is ended[-1] or run.left > ended[-1].entered or run.outcome == "succeeds"
            or story.stood_still_after(run, until=ended[-1].entered)]  # fmt: skip


def _tells(run, status, value):
    if run.outcome == "succeeds" and run.written:
        return status == "SUCCESS" and value == run.value
    if run.outcome == "succeeds" or run.outcome == "fails":
        return status == "FAILURE" and run.value in str(value)
    return status == "FAILURE" and run.outcome in str(value)
