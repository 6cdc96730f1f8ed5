"""The reaper as its users run it: an entry in the schedule of a real ``celery beat``, and a worker."""

import json
import os
from datetime import datetime, timedelta, timezone

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
    freed = f"'tasks': {{'{floor.shop.late.name}': {{'lapsed': 1, 'orphaned': 0, 'expired': 0, 'kept': 0}}}}"
    eventually(lambda: freed in worker.logs(), within=60, what="the report as the task's result")
    assert not floor.shop.late.apply_async(("a",), queue="unread").duplicate


@pytest.mark.conf(beat_schedule={"reap-locks": {"task": "celery_once_more.reap", "schedule": 0.1}})
def test_passes_of_a_schedule_that_is_too_tight_do_not_pile_up(floor, start, beat):
    """Each one that beat sends expires in a minute, and a worker that comes later drops it. Here they are made a minute older."""
    eventually(lambda: len(floor.broker.waiting()) > 20, what="passes that nobody makes")
    beat.stop()
    late = floor.broker.waiting()
    floor.broker.client.delete("celery")
    for message in late:
        expires = datetime.fromisoformat(message["headers"]["expires"])
        assert timedelta(0) < expires - datetime.now(timezone.utc) <= timedelta(seconds=60)
        message["headers"]["expires"] = (expires - timedelta(seconds=60)).isoformat()
        floor.broker.send(message)
    fresh = floor.shop.app.send_task("celery_once_more.reap")
    worker = start("-c", "1")
    assert fresh.get(timeout=60)["kept"] == 0
    eventually(floor.broker.empty, what="an empty queue")
    eventually(lambda: worker.logs().count("Discarding revoked task: celery_once_more.reap") == len(late), what="all discarded")
    eventually(lambda: worker.logs().count(" succeeded in ") == 1, what="the line of the only one that was run")
