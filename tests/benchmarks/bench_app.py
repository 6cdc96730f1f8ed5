"""The app that is measured: one body twice, unique and plain. Databases: 0 broker, 1 results, 2 locks.

``BENCH_REDIS`` is a server's URL without a database; ``BENCH_LOCKS`` is that of the locks, where they live elsewhere.
"""

import os

from celery import Celery

from celery_once_more import UniqueTask

REDIS = os.environ["BENCH_REDIS"]

app = Celery("bench", broker=f"{REDIS}/0", backend=f"{REDIS}/1")
app.conf.update(
    once_more_redis_url=f"{os.environ.get('BENCH_LOCKS', REDIS)}/2",
    once_more_lease=3600,  # no beat of the keeper among what is counted
    broker_connection_retry_on_startup=True,
)


@app.task
def plain(event_id, payload=None):
    return None


@app.task(base=UniqueTask, lock="until_executed", lock_args=["event_id"])
def unique(event_id, payload=None):
    return None
