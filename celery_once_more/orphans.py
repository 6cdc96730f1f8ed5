"""Finds waiting holders whose message is gone: its publisher died before it was sent, or its queue was purged or deleted.

Nobody alive stands behind such a lock, and only its queue lease would end it. Two looks in a row must miss the message, and
no worker that lives may know of it, or have an answer of the broker that it has not read. What it cannot know is whether a
message is on its way in these moments, or in the hands of a process that stands still; a wrong free costs at most one more
queued copy, never two runs at once, because the start of a run is the authority.
"""

from __future__ import annotations

from celery_once_more.locks import Waiting
from celery_once_more.runtime import Runtime, milliseconds

#: waiting holders that one pass looks at
LOOKS = 2000


def free(rt: Runtime, *, limit: int) -> tuple[list[Waiting], list[Waiting]]:
    """Look once; those that an earlier look had missed as well are freed, at most ``limit`` of them. The others are kept.

    Raises:
        StoreUnavailable: the store did not answer.
    """
    broker = rt.broker
    if broker is None or limit < 1:
        return [], []
    noted = rt.store.suspects.noted()
    queues = {w: queue for w in {**dict.fromkeys(rt.store.waiting(limit=LOOKS)), **noted}
              if (queue := broker.queue(w.place)) is not None}  # fmt: skip
    if not queues:
        return [], []
    there = broker.messages(queues.values())
    missing: dict[Waiting, str] = {}
    found = []
    for waiting, queue in queues.items():
        ids, before = there[queue], noted.get(waiting, "")
        if ids is None or waiting.task_id in ids:
            found += [waiting] if before else []
        elif not before:
            missing[waiting] = before
        elif limit:
            missing[waiting], limit = before, limit - 1
    gone = rt.store.release_all(rt.store.suspects.note(missing, found, lease_ms=milliseconds(rt.settings.lease)))
    return gone, list(queues.keys() - set(gone))
