"""``until_expired`` where the schedule fires twice: two ``celery beat`` run side by side."""

import json
import os

import pytest
from support.beat_process import BeatProcess
from support.waiting import eventually

pytest_plugins = ["support.floor"]

PERIOD_S = 3
SCHEDULE = {"periodic": {"task": "shop_locks.periodic", "schedule": 0.4}}


@pytest.fixture
def beats(floor, conf, tmp_path):
    beats = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        env = {**os.environ, "SHOP_CONF": json.dumps(conf), "SHOP_SIGNALS": "tell"}
        beats.append(BeatProcess(tmp_path / name, app="shop_locks", env=env))
    yield beats
    for beat in beats:
        beat.stop()


@pytest.mark.conf(beat_schedule=SCHEDULE)
def test_of_two_beats_that_fire_all_the_time_one_call_runs_in_each_period(floor, start, beats):
    """Over two periods. All of it is on the store's clock."""
    start("-c", "2", app="shop_locks")
    eventually(lambda: floor.ended("periodic") >= 3, within=60, what="three runs")
    first, second, third = floor.runs("periodic")[:3]
    for run, following in ((first, second), (second, third)):
        assert following["at_ms"] >= run["stop"]
        assert following["stop"] >= run["stop"] + PERIOD_S * 1000
    assert first["at_ms"] < first["stop"]
    pids = {beat.process.pid for beat in beats}
    told = floor.witness.events("signal")
    admitted = [e["what"]["task_id"] for e in told if e["name"] == "lock_acquired" and e["what"]["phase"] == "waiting"]
    assert admitted[:3] == [run["task_id"] for run in (first, second, third)]
    refused = [e for e in told if e["name"] == "lock_conflict"]
    assert {e["pid"] for e in refused} == pids  # each of them was a duplicate, too
    assert {e["what"]["holder"] for e in refused} >= {first["task_id"], second["task_id"]}
