"""Who holds a lock, read from the store's record itself and not through the package's acts."""

from typing import NamedTuple

from celery_once_more import queues
from celery_once_more.run import fresh_ticket
from celery_once_more.runtime import runtime
from celery_once_more.ticket import new_series
from support import lock_db

DAY_MS = 24 * 3600 * 1000
UNPACK = "local raw = redis.call('GET', KEYS[1]) if not raw then return {''} end return cmsgpack.unpack(raw)"
LAPSE = """
local raw = redis.call('GET', KEYS[1])
if not raw then return 0 end
local rec = cmsgpack.unpack(raw)
for i = 2, #rec do rec[i][5] = 1 end
redis.call('SET', KEYS[1], cmsgpack.pack(rec), 'KEEPTTL')
redis.call('ZADD', KEYS[2], 1, ARGV[1])
return #rec - 1
"""


class Holder(NamedTuple):
    series: int
    task_id: str
    run: str
    #: ``W`` waiting, ``R`` running, ``F`` running and freed, ``K`` kept until its period is over
    phase: str
    #: its deadline, in milliseconds on the server's clock
    until: int
    #: seconds until then
    remaining: float
    token: int
    #: numbers of its messages that are good, newest first
    hops: list

    @property
    def identity(self):
        """All but its deadline."""
        return self.series, self.task_id, self.run, self.phase, self.token, self.hops


def digest(task, *args, **kwargs):
    queue = queues.published_to(task.app, queues.resolve(task, args, kwargs, {}))
    return fresh_ticket(task, task.once_more, args, kwargs, task_id="", queue=queue, series=0).digest


def now_ms(task):
    """On the store's clock."""
    seconds, microseconds = runtime(task.app).store.client.time()
    return seconds * 1000 + microseconds / 1000


def holders(task, *args, **kwargs):
    """Those whose deadline has not passed; there is one at most, or this is no ``until_executed`` lock between two runs."""
    store = runtime(task.app).store
    return _alive(store, store.keys.record(digest(task, *args, **kwargs)), now_ms(task))


def everyone(app):
    """The holders of all locks of this app, lapsed ones too."""
    store = runtime(app).store
    records = [store.keys.record(name) for name in lock_db.held(store.client)]
    return [holder for record in records for holder in _alive(store, record, now=0)]


def _alive(store, record, now):
    _, *raw = store.client.eval(UNPACK, 1, record)
    return [
        Holder(series, task_id.decode(), run.decode(), phase.decode(), until, (until - now) / 1000, max(token, 0), hops)
        for series, task_id, run, phase, until, _stop, token, hops, *_ in raw
        if until > now
    ]


def holder(task, *args, **kwargs):
    """The one holder, or ``None``."""
    found = holders(task, *args, **kwargs)
    assert len(found) < 2, found
    return found[0] if found else None


def free(task, *args, **kwargs):
    return not holders(task, *args, **kwargs)


def lapse(task, *args, **kwargs):
    """Move the deadline of every holder into the past, as the time would; the number of holders."""
    store, name = runtime(task.app).store, digest(task, *args, **kwargs)
    return store.client.eval(LAPSE, 2, store.keys.record(name), store.keys.due(name), name)


def take(task, *args, running=False, **kwargs):
    """Let a call hold this lock that is never published, and so never ends; its record, as it stands."""
    store = runtime(task.app).store
    queue = queues.published_to(task.app, queues.resolve(task, args, kwargs, {}))
    ticket = fresh_ticket(task, task.once_more, args, kwargs, task_id="bystander", queue=queue, series=new_series())
    assert store.acquire(ticket, wait_ms=DAY_MS).verdict == "admitted"
    if running:
        assert store.start(ticket, run="bystander", lease_ms=DAY_MS, redelivered=False).verdict == "run"
    return record(task, *args, **kwargs)


def record(task, *args, **kwargs):
    """The bytes that the store keeps of this lock, or ``None``."""
    store = runtime(task.app).store
    return store.client.get(store.keys.record(digest(task, *args, **kwargs)))
