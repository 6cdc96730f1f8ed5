"""A worker of greenlets with a thousand running tasks keeps all of their locks, in one pipelined trip per beat."""

import pytest
from support import lock_db
from support.waiting import eventually

#: all of them end at once, which takes a busy machine seconds, and greenlets take turns: a lease is longer than that
RUNS, LEASE_S, CONNECTIONS = 1000, 20, 50


@pytest.mark.conf(once_more_lease=LEASE_S, worker_prefetch_multiplier=0)
def test_a_thousand_runs_are_renewed_in_one_trip_per_beat(shop, start_worker, clean_redis, tmp_path):
    gate = tmp_path / "gate"
    worker = start_worker("-P", "gevent", "-c", str(RUNS), app="shop_many", env={"SHOP_GATE": str(gate)}).container
    trips = lambda: [int(each) for each in shop.witness.redis.lrange("renewals", 0, -1)]  # noqa: E731
    locks = clean_redis.client(2)
    task = shop.app.signature("shop_many.waits")
    for number in range(RUNS):
        task.clone((number,)).apply_async()
    eventually(lambda: RUNS in trips(), within=60, what="a trip that renews all of them")
    full = trips().index(RUNS)
    eventually(lambda: len(trips()) > full + 4, within=90, what="more than a lease")
    assert set(trips()[full:]) == {RUNS}, trips()
    assert sum(client["db"] == "2" for client in locks.client_list()) <= CONNECTIONS + 1  # and this one
    gate.touch()

    eventually(lambda: worker.logs().count(" succeeded in ") == RUNS, within=90, what="the end of all runs")
    for sign in ("was lost", "lapsed", "did not answer", "Traceback"):
        assert sign not in worker.logs()
    eventually(lambda: not lock_db.held(locks), within=60, what="free locks")
