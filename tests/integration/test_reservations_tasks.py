"""What becomes of a task that finds its reservation busy, or in doubt: a plain one, and a unique one that holds a lock."""

import contextlib
import threading

import pytest
from celery import Task
from celery.exceptions import Retry
from sqlalchemy import NullPool, create_engine
from support import held
from support.apps import unique, working
from support.broker import body
from support.waiting import eventually

from celery_once_more import ConfigurationError, UniqueTask
from celery_once_more.reservations import REFUSE, REPEAT, Busy, LostReservation, OutcomeUnknown, Reservations

pytest_plugins = ["support.app_fixtures"]

KINDS = {"plain": {"base": Task}, "unique": {"base": UniqueTask, "lock": "until_executed"}}
#: seconds of the lease that another attempt has
BUSY_FOR = 4


@pytest.fixture
def reservations(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/charges.sqlite3", poolclass=NullPool)
    reservations = Reservations.sqlalchemy(engine)
    reservations.create_table()
    yield reservations
    engine.dispose()


@pytest.fixture
def app(make_app):
    return make_app(once_more_lease=60)


@pytest.fixture(params=KINDS)
def make(app, request):
    """``make(body, **options)`` -> a task of each kind; ``body(task, key)``."""

    def make(function, *, app=app, **options):
        return app.task(bind=True, name="app.charge", shared=False, **KINDS[request.param], **options)(function)

    return make


@pytest.fixture
def another_has(reservations):
    """``another_has("a", lease=4)``: an attempt whose process is stopped in its effect, from now on until the test ends."""
    thawed, threads = threading.Event(), []

    def own(key, lease, claimed):
        with contextlib.suppress(LostReservation):
            reservations.run(key, lambda r: claimed.set() or thawed.wait(), on_unknown=REPEAT, lease=lease)

    def another_has(key, lease=BUSY_FOR):
        claimed = threading.Event()
        threads.append(threading.Thread(target=own, args=(key, lease, claimed)))
        threads[-1].start()
        assert claimed.wait(30)

    yield another_has
    thawed.set()
    for thread in threads:
        thread.join()


def in_doubt(reservations, key):
    with pytest.raises(ZeroDivisionError):
        reservations.run(key, lambda r: 1 / 0, on_unknown=REPEAT, lease=60)


def charging(reservations, policy=REPEAT, **more):
    tries = []

    def charge(task, key):
        tries.append(task.request.retries)
        return reservations.run(key, lambda r: "charged", on_unknown=policy, lease=60, **more)

    return charge, tries


def linked(*args):
    pass


def waits(broker, task_id):
    """Its message, once it is one with an ETA."""
    return eventually(lambda: (m := broker.find(task_id)) and m["headers"]["eta"] and m, what="the message put off")


@pytest.mark.parametrize(
    "options", [{"max_retries": 0}, {"autoretry_for": (Exception,), "max_retries": 0}], ids=["", "autoretry"]
)
@pytest.mark.parametrize("acks", [{}, {"acks_late": True}], ids=["early", "late"])
def test_a_busy_task_is_put_off_until_the_lease_ends_and_spends_no_retries(app, make, reservations, another_has, options, acks):
    another_has("a")
    charge, tries = charging(reservations)
    task = make(charge, **options, **acks)
    with working(app):
        result = task.delay("a")
        assert result.get(timeout=60) == "charged"
    assert tries == [0] * len(tries)
    assert len(tries) >= 2
    assert held.free(task, "a") if isinstance(task, UniqueTask) else True


def test_the_message_put_off_is_the_same_but_for_its_eta(app, make, reservations, another_has, broker):
    another_has("a", lease=600)
    charge, _ = charging(reservations)
    task = make(charge)
    other = app.task(linked, name="app.linked", shared=False)
    result = task.apply_async(
        ("a",), link=other.si(), expires=6000, time_limit=20, priority=3, parent_id="parent", retries=2, ignore_result=True
    )
    before = broker.find(result.id)
    with working(app):
        after = waits(broker, result.id)
    assert body(before)[:2] == body(after)[:2]
    assert {**body(before)[2], "chain": None} == {**body(after)[2], "chain": None}
    kept = set(before["headers"]) - {"eta", "origin", "once_more", "once-more"}
    assert [name for name in kept if before["headers"][name] != after["headers"].get(name)] == []


def test_its_state_says_retry_and_its_result_says_what_is_busy(app, make, reservations, another_has, broker):
    another_has("a", lease=600)
    charge, _ = charging(reservations)
    task = make(charge)
    result = task.delay("a")
    with working(app):
        waits(broker, result.id)
        assert result.state == "RETRY"
        assert (type(result.result), result.result.key) == (Busy, '"a"')


def test_a_unique_task_keeps_its_lock_while_it_waits(app, reservations, another_has, broker):
    another_has("a", lease=600)
    charge, _ = charging(reservations)
    task = unique(app, charge, bind=True, name="app.charge")
    result = task.delay("a")
    with working(app):
        waits(broker, result.id)
        assert (task.delay("a").duplicate, task.delay("a").id) == (True, result.id)
        assert task.lock_info("a").phase == "waiting"


def test_a_task_that_catches_it_is_not_put_off(app, make, reservations, another_has):
    another_has("a")

    def charge(task, key):
        try:
            reservations.run(key, lambda r: "charged", on_unknown=REPEAT, lease=60)
        except Busy as busy:
            return [busy.key, 0 < busy.retry_after <= BUSY_FOR]

    task = make(charge)
    with working(app):
        assert task.delay("a").get(timeout=60) == ['"a"', True]


@pytest.mark.parametrize("acks_late", [True, False])
def test_where_it_cannot_be_put_off_a_late_message_goes_back_and_an_early_one_fails(
    app, make_app, make, reservations, another_has, nowhere, acks_late
):
    another_has("a", lease=600)
    charge, tries = charging(reservations)
    mute = make_app(broker_read_url=app.conf.broker_url, broker_write_url=app.conf.broker_url, task_publish_retry=False)
    make(charge, app=mute, acks_late=acks_late)
    with working(mute):
        mute.conf.broker_write_url = nowhere
        mute._pool = mute.amqp._producer_pool = None
        result = make(charge, acks_late=acks_late).delay("a")
        if acks_late:
            eventually(lambda: len(tries) > 2, what="deliveries that came back")
        else:
            with pytest.raises(Busy):
                result.get(timeout=60)
            assert len(tries) == 1


@pytest.mark.parametrize("options", [{"autoretry_for": (Exception,), "max_retries": 3, "default_retry_delay": 0}, {}],
                         ids=["autoretry", ""])  # fmt: skip
def test_an_unknown_outcome_fails_the_task_without_a_retry(app, make, reservations, options):
    in_doubt(reservations, "a")
    charge, tries = charging(reservations, REFUSE)
    task = make(charge, **options)
    with working(app):
        with pytest.raises(OutcomeUnknown):
            task.delay("a").get(timeout=60)
        assert tries == [0]
        reservations.resolve("a", done="paid by hand")
        assert task.delay("a").get(timeout=60) == "paid by hand"


def test_other_errors_of_such_a_task_are_retried_as_before(app, make, reservations):
    in_doubt(reservations, "a")
    charge, tries = charging(reservations, REFUSE)

    def fails(task, key):
        if key == "b":
            tries.append(task.request.retries)
            raise ValueError("not of ours")
        return charge(task, key)

    task = make(fails, autoretry_for=(Exception,), max_retries=2, retry_kwargs={"countdown": 0})
    with working(app):
        with pytest.raises(OutcomeUnknown):
            task.delay("a").get(timeout=60)
        with pytest.raises(ValueError, match="not of ours"):
            task.delay("b").get(timeout=60)
    assert tries == [0, 0, 1, 2]


def test_outside_a_worker_it_is_a_plain_error(app, make, reservations, another_has):
    another_has("a", lease=600)
    charge, _ = charging(reservations)
    task = make(charge)
    with pytest.raises(Busy) as caught:
        task("a")
    assert not isinstance(caught.value, Retry)
    eager = task.apply(("a",))
    assert (eager.state, type(eager.result)) == ("FAILURE", Busy)


# The beat task


def test_a_beat_task_purges_what_has_been_done_for_long_enough(app, reservations):
    reservations.run("a", lambda r: 1, on_unknown=REPEAT, lease=60)
    in_doubt(reservations, "b")
    task = reservations.purge_task(app, older_than=0.001)
    app.conf.beat_schedule = {"purge": {"task": "celery_once_more.purge_reservations", "schedule": 3600.0}}
    with working(app):
        assert app.send_task(app.conf.beat_schedule["purge"]["task"]).get(timeout=60) == 1
        assert task.delay().get(timeout=60) == 0
    assert [unknown.key for unknown in reservations.unknowns()] == ["b"]


def test_two_databases_have_a_beat_task_each(app, reservations):
    reservations.purge_task(app)
    reservations.purge_task(app, name="app.purge_archive")
    with pytest.raises(ConfigurationError, match=r"the app has a task 'app\.purge_archive' already: give another name="):
        reservations.purge_task(app, name="app.purge_archive")
    with pytest.raises(ConfigurationError, match="older_than must be a positive number"):
        reservations.purge_task(app, name="app.purge_all", older_than=0)
    assert app.tasks["app.purge_archive"].expires == 3600
    assert "app.purge_all" not in app.tasks
