"""The reaper as its users run it: an entry in the schedule of a real ``celery beat``, and a worker."""

import json
import os

import pytest
from support.beat_process import BeatProcess
from support.waiting import eventually

pytest_plugins = ["support.floor"]

SCHEDULE = {"reap-locks": {"task": "celery_once_more.reap", "schedule": 1.0}}


@pytest.fixture
def beat(floor, conf, tmp_path):
    beat = BeatProcess(tmp_path, env={**os.environ, "SHOP_CONF": json.dumps(conf)})
    yield beat
    beat.stop()


@pytest.mark.conf(beat_schedule=SCHEDULE, once_more_queue_lease=1)
def test_beat_and_a_worker_free_a_lapsed_lock(floor, start, beat):
    """Its message stands in a queue that nobody reads. The keeper's first beat, which reaps too, is 20 seconds away."""
    lapses = floor.shop.late.apply_async(("a",), queue="unread")
    assert not lapses.duplicate
    worker = start("-c", "1", SHOP_SIGNALS="tell")
    (told,) = eventually(lambda: floor.told("lock_reaped", task_id=lapses.id), within=60)
    assert told["key"] == floor.shop.late.name
    assert told["what"]["phase"] == "waiting"
    assert floor.free()
    assert "lapsed while waiting, and was freed" in worker.logs()
    freed = f"'tasks': {{'{floor.shop.late.name}': {{'lapsed': 1, 'orphaned': 0, 'expired': 0}}}}"
    eventually(lambda: freed in worker.logs(), within=60, what="the report as the task's result")
    assert not floor.shop.late.apply_async(("a",), queue="unread").duplicate
