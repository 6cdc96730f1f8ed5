"""The lock store is away for a while, in each way there is, while calls are published, start, run, retry and end.

Each outage is played once, with a call in each of these moments; every test looks at one of them.
"""

import json

import pytest
from support.floor import Floor
from support.outages import IMPATIENT, OUTAGES, Store
from support.shop_life import shop_for_a_module
from support.store_outage import TASKS, StoreOutage
from support.waiting import eventually
from support.worker_process import WorkerProcess

from celery_once_more import StoreUnavailable

#: what is put off comes again after a lease
CONF = {"once_more_lease": 2, "once_more_redis_options": IMPATIENT}


@pytest.fixture(scope="module")
def store():
    store = Store()
    yield store
    store.stop()


@pytest.fixture(scope="module")
def shop(shop_env, redis_server, store):
    import shop_gated

    yield from shop_for_a_module(shop_gated, redis_server, once_more_redis_url=store.url, **CONF)


@pytest.fixture(scope="module")
def worker(shop, store):
    conf = {"once_more_redis_url": store.url, **CONF}
    process = WorkerProcess("-c", "10", app="shop_gated", name="outage",
                            env={"SHOP_CONF": json.dumps(conf), "SHOP_SIGNALS": "tell"})  # fmt: skip
    process.ready()
    yield process
    process.teardown()


@pytest.fixture(scope="module", params=list(OUTAGES))
def outage(request, shop, redis_server, store, worker):
    floor = Floor(shop, redis_server)
    yield StoreOutage(floor, store, worker, request.param).play()
    floor.stored.close()


def test_a_publish_is_told_within_the_timeouts_and_not_sent(outage):
    assert type(outage.error) is StoreUnavailable
    assert outage.error.__cause__ is not None
    assert outage.message_meanwhile == outage.runs("publish") == []


def test_the_call_of_which_its_publisher_was_told_so_can_be_published_afterwards(outage):
    again = outage.publish("publish")
    assert not again.duplicate
    outage.open("publish")
    assert again.get(timeout=30) == outage.key("publish")


def test_a_publish_that_proceeds_is_sent_and_runs_once(outage):
    (run,) = outage.runs("publish that proceeds")
    assert outage.ran_meanwhile["publish that proceeds"] == [run]
    assert run["token"] is None
    assert outage.calls["publish that proceeds"].get() == outage.key("publish that proceeds")


@pytest.mark.parametrize("moment", ["start", "early start"])
def test_a_message_that_is_to_start_waits_until_the_store_is_back_and_runs_once_under_its_lock(outage, moment):
    assert outage.ran_meanwhile[moment] == []
    (run,) = outage.runs(moment)
    assert (run["task_id"], run["retries"]) == (outage.calls[moment].id, 0)
    assert run["token"]
    assert outage.calls[moment].get() == outage.key(moment)


def test_a_message_that_proceeds_starts_without_the_store_and_runs_once(outage):
    (run,) = outage.runs("start that proceeds")
    assert outage.ran_meanwhile["start that proceeds"] == [run]
    assert run["token"] is None
    assert outage.calls["start that proceeds"].get() == outage.key("start that proceeds")


@pytest.mark.parametrize("moment", ["renewal", "early renewal"])
def test_a_run_that_could_not_be_renewed_goes_on_and_has_its_lock_afterwards(outage, moment):
    assert (outage.twins[moment].duplicate, outage.twins[moment].id) == (True, outage.calls[moment].id)
    assert len(outage.runs(moment)) == 1
    assert outage.calls[moment].get() == outage.key(moment)


def test_a_retry_is_not_lost_and_runs_after_its_first_run(outage):
    assert [run["retries"] for run in outage.runs("retry")] == [0, 1]
    assert len(outage.ran_meanwhile["retry"]) == 1
    assert outage.calls["retry"].get() == outage.key("retry")


@pytest.mark.parametrize("moment", ["end", "early end"])
def test_the_outcome_of_a_run_that_ended_stands_and_its_lock_is_free_after_its_lease(outage, moment):
    assert len(outage.runs(moment)) == 1
    assert outage.calls[moment].get() == outage.key(moment)
    again = eventually(lambda: not (result := outage.publish(moment)).duplicate and result)
    assert again.get(timeout=30) == outage.key(moment)


def test_afterwards_nothing_is_held_nothing_is_left_in_the_broker_and_nothing_ran_beside_itself(outage):
    outage.floor.settled()
    # the last beats before the outage may arrive late, and take a lock again for a run that is over: until its lease lapses
    eventually(lambda: outage.left() == [], what="nothing left")
    keys = {outage.key(moment) for moment in TASKS}
    assert not [start for start in outage.floor.witness.overlaps() if start["key"] in keys]
