"""Every cell of the table in docs/locks.md, on a real worker: what a second publish is told, and what becomes of it."""

import re
from contextlib import contextmanager
from pathlib import Path

import pytest
from celery import signals
from support import held
from support.broker import Broker
from support.gates import Gates
from support.shop_life import shop_for_a_module
from support.waiting import eventually
from support.worker_process import WorkerNode, WorkerProcess

from celery_once_more import ConfigurationError
from celery_once_more.lock_types import LOCK_TYPES

PAGE = (Path(__file__).parents[2] / "docs" / "locks.md").read_text()
#: a lock without a period
NO_PERIOD = "–"  # noqa: RUF001
PERIOD_S = 2


def table():
    """``{lock: {moment: cell}}``"""
    section = PAGE.split("\n## What a second publish is told\n")[1]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("|")]
    (_, *moments), _, *body = rows
    return {lock.strip("`"): dict(zip(moments, cells, strict=True)) for lock, *cells in body}


TABLE = table()
CELLS = [(lock, moment, cell) for lock, row in TABLE.items() for moment, cell in row.items()]


@pytest.fixture(scope="module")
def shop(shop_env, redis_server):
    import shop_locks

    yield from shop_for_a_module(shop_locks, redis_server)


@pytest.fixture(scope="module")
def worker(shop):
    process = WorkerProcess("-c", "4", app="shop_locks", name="table")
    process.ready()
    yield WorkerNode(process, shop.app)
    process.teardown()


class Calls:
    """Two calls with one digest under one lock: the first is brought to a moment of its life, then the second is published."""

    def __init__(self, shop, worker, broker, task, key):
        self.shop, self.worker, self.broker, self.task, self.key = shop, worker, broker, task, key
        self.gates, self.witness = Gates(shop.witness.redis), shop.witness
        self.first = None

    def publish(self, end="success", **options):
        return self.task.apply_async((self.key, end), **options)

    def messages(self):
        """Task ids of everything of this key that is in the broker, or in the worker's hands."""
        every = self.broker.waiting() + self.broker.unacknowledged()
        return {message["headers"]["id"] for message in every if repr(self.key) in message["headers"]["argsrepr"]}

    def runs(self):
        return [e["task_id"] for e in self.witness.events("start", self.key)]

    def waits(self):
        self.first = self.publish(countdown=self.shop.LONG)

    def runs_now(self, end="success", **options):
        self.first = self.publish(end, **options)
        eventually(lambda: len(self.runs()) == 1, what="the first run")

    def ends(self, end="success", state="SUCCESS", **options):
        self.runs_now(end, **options)
        self.gates.open(f"{self.key}:1")
        eventually(lambda: not self.messages(), what="the first one's acknowledgement")  # late: its run has told the store
        assert self.first.state == state

    def retries(self):
        self.runs_now("retry")
        self.gates.open(f"{self.key}:1")
        eventually(lambda: not self.broker.find(self.first.id, retries=0), what="the end of the first attempt")
        assert self.broker.find(self.first.id, retries=1)

    def is_revoked(self):
        """The worker discards it when it arrives, and is done with that when it hands on the one behind it."""
        self.shop.app.control.revoke(self.key, destination=[self.worker.hostname()], reply=True, timeout=30)
        self.first = self.publish(task_id=self.key)
        self.gates.open(f"{self.key}, behind:1")
        assert self.task.delay(f"{self.key}, behind").get(timeout=30)
        assert (self.first.state, self.runs()) == ("REVOKED", [])

    def outlasts_its_period(self):
        self.ends(lock_ttl=PERIOD_S)
        kept = held.holder(self.task, self.key)
        eventually(lambda: held.now_ms(self.task) >= kept.until, what="the end of the period, on the store's clock")

    def second(self, cell):
        """Publish it; it must be told what the cell says, and become that."""
        with self.published() as ids:
            again = self.publish()
        self.gates.open(f"{self.key}:1", f"{self.key}:2")
        if cell == "duplicate":
            assert (again.duplicate, again.id, ids) == (True, self.first.id, [])
        else:
            assert (again.duplicate, [again.id]) == (False, ids)
            assert again.get(timeout=30) == self.key
            assert self.runs().count(again.id) == 1

    @contextmanager
    def published(self):
        """The task ids of what this process sends to the broker meanwhile."""
        ids = []

        def note(headers, **_):
            ids.append(headers["id"])

        signals.after_task_publish.connect(note, weak=False)  # Celery 5.6 goes deaf by weak ones that went
        try:
            yield ids
        finally:
            signals.after_task_publish.disconnect(note)


MOMENTS = {
    "while the first waits": Calls.waits,
    "while it runs": Calls.runs_now,
    "after its success": Calls.ends,
    "after its failure": lambda calls: calls.ends("failure", "FAILURE"),
    "during a retry's countdown": Calls.retries,
    "after it was revoked before its start": Calls.is_revoked,
    "after its period": Calls.outlasts_its_period,
}


@pytest.fixture
def calls(shop, worker, redis_server, request):
    lock = request.node.callspec.params["lock"]
    key = re.sub(r"\W+", " ", request.node.name)
    return Calls(shop, worker, Broker(redis_server.client(0)), shop.by_lock[lock], key)


def test_the_table_has_every_lock_and_every_moment_and_says_one_of_two_words():
    assert list(TABLE) == list(LOCK_TYPES)
    for lock, row in TABLE.items():
        assert list(row) == list(MOMENTS)
        words = {"admitted", "duplicate"} if LOCK_TYPES[lock].kept else {"admitted", "duplicate", NO_PERIOD}
        assert set(row.values()) <= words


@pytest.mark.parametrize(("lock", "moment", "cell"), [c for c in CELLS if c[2] != NO_PERIOD])
def test_a_second_publish_is_told_what_the_table_says(calls, lock, moment, cell):
    MOMENTS[moment](calls)
    calls.second(cell)


@pytest.mark.parametrize(("lock", "moment"), [c[:2] for c in CELLS if c[2] == NO_PERIOD])
def test_a_lock_of_which_the_table_knows_no_period_takes_none(calls, lock, moment):
    assert moment == "after its period"
    with pytest.raises(ConfigurationError, match="lock_ttl makes no sense"):
        calls.publish(lock_ttl=PERIOD_S)
    assert calls.messages() == set()


@pytest.mark.parametrize("lock", ["until_expired"])
def test_until_the_end_of_its_period_every_publish_is_a_duplicate(calls, lock):
    """Its run succeeded long before. The next call has a period of its own."""
    calls.ends(lock_ttl=PERIOD_S)
    kept = held.holder(calls.task, calls.key)
    answers = []

    def publish():
        answers.append(calls.publish())
        return not answers[-1].duplicate

    eventually(publish, what="the end of the period")
    assert held.now_ms(calls.task) >= kept.until
    assert {(a.duplicate, a.id) for a in answers[:-1]} == {(True, calls.first.id)}
    calls.gates.open(f"{calls.key}:2")
    assert answers[-1].get(timeout=30) == calls.key
    assert held.holder(calls.task, calls.key).until > kept.until


#: what was admitted while the first runs
BESIDE, AFTER = "until_executing", ["until_and_while_executing", "while_executing", "until_expired"]


@pytest.mark.parametrize("lock", [BESIDE])
def test_what_is_admitted_while_the_first_runs_may_run_beside_it(calls, lock):
    calls.runs_now()
    again = calls.publish()
    eventually(lambda: calls.runs() == [calls.first.id, again.id], what="both runs")
    assert calls.witness.events("start", calls.key)[1]["overlaps"]
    calls.gates.open(f"{calls.key}:2")
    assert again.get(timeout=30) == calls.key
    calls.gates.open(f"{calls.key}:1")
    assert calls.first.get(timeout=30) == calls.key


@pytest.mark.parametrize("lock", AFTER)
def test_what_is_admitted_while_the_first_runs_waits_for_its_end(calls, lock):
    """Seen to be sent away at its start at least twice. The period of ``until_expired`` is over while its first call runs."""
    calls.runs_now(**({"lock_ttl": 0.5, "lock_lease": 1} if lock == "until_expired" else {}))
    again = eventually(lambda: (second := calls.publish()) and not second.duplicate and second)
    etas = set()

    def sent_away():
        message = calls.broker.find(again.id)
        etas.add(message and message["headers"]["eta"])
        return len(etas - {None}) >= 2

    eventually(sent_away, what="two more messages of the second call")
    assert calls.runs() == [calls.first.id]
    calls.gates.open(f"{calls.key}:1", f"{calls.key}:2")
    assert calls.first.get(timeout=30) == again.get(timeout=30) == calls.key
    assert calls.runs() == [calls.first.id, again.id]
    assert not [e for e in calls.witness.events("start", calls.key) if e["overlaps"]]
