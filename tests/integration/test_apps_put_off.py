"""A message that is put off is the same message, but for its ETA: whoever waits for it, counts it or limits it, still can."""

import pytest
from celery import chain, chord
from support.apps import unique, working
from support.broker import body
from support.waiting import eventually

pytest_plugins = ["support.app_fixtures"]

#: differs between two messages of one call anyway, or says what is meant to differ
OWN = {"eta", "origin"}


def settle(event_id):
    return event_id


@pytest.fixture
def app(make_app, lock_server):
    return make_app(once_more_redis_url=lock_server.url(0), once_more_lease=600)


@pytest.fixture
def task(app):
    return unique(app, settle, typing=True)


@pytest.fixture
def put_off(app, broker, lock_server):
    """``put_off(task_id)`` -> a message as it was published, and as it waits after a worker met it without a store."""

    def put_off(task_id):
        before = broker.find(task_id)
        lock_server.kill()
        with working(app):
            after = eventually(lambda: (m := broker.find(task_id)) and m["headers"]["eta"] and m, within=60)
        return before, after

    return put_off


def test_a_message_put_off_keeps_everything_but_its_eta(app, task, put_off):
    other = app.task(settle, name="app.other", shared=False)
    result = task.apply_async(
        ("evt",), link=other.si("linked"), link_error=other.si("linked to errors"), expires=6000, time_limit=60,
        soft_time_limit=50, shadow="shown", priority=3, headers={"trace": "abc"}, ignore_result=True, root_id="root",
        parent_id="parent", retries=2,
    )  # fmt: skip
    before, after = put_off(result.id)
    assert body(before)[:2] == body(after)[:2]
    assert {**body(before)[2], "chain": None} == {**body(after)[2], "chain": None}
    for name in (before["headers"].keys() | after["headers"].keys()) - OWN - {"redelivered"}:
        assert (name, after["headers"].get(name)) == (name, before["headers"].get(name))
    for name in ("correlation_id", "reply_to", "priority", "delivery_mode"):
        assert (name, after["properties"].get(name)) == (name, before["properties"].get(name))


def test_a_chords_member_put_off_still_counts(app, task, put_off, lock_server):
    together = app.task(settle, name="app.together", shared=False)
    result = chord([task.s("b"), task.s("a")])(together.s())
    member = result.parent[0].id
    before, after = put_off(member)
    for name in ("group", "group_index", "root_id"):
        assert before["headers"][name] == after["headers"][name]
    assert body(before)[2]["chord"]["options"]["task_id"] == body(after)[2]["chord"]["options"]["task_id"] == result.id


def test_a_chains_head_put_off_still_goes_on(app, task, put_off):
    result = chain(task.si("a"), task.si("b"), task.si("c")).delay()
    before, after = put_off(result.parent.parent.id)
    steps = [[step["options"]["task_id"] for step in body(message)[2]["chain"]] for message in (before, after)]
    assert steps[0] == steps[1] == [result.id, result.parent.id]
