"""Forty processes and one key: one does the effect, and none sees an error other than that it came too late."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.forked import Child, race

from celery_once_more.reservations import ASSUME_DONE, CANNOT_SAY, NOT_DONE, REFUSE, REPEAT, Busy, OutcomeUnknown, verify

KEY = ("charge", 42)
PROCESSES = 40
#: where it is not a question of who is first
FEW = 8


class Refused(Exception):
    pass


@pytest.fixture
def effects(tmp_path):
    """``effects(line)`` writes one, from any process; ``effects.all()`` reads them."""

    class Effects:
        path = tmp_path / "effects"

        def __call__(self, line):
            with self.path.open("a") as file:
                file.write(f"{line}\n")

        def all(self):
            return self.path.read_text().splitlines() if self.path.exists() else []

    return Effects()


def run_all(backend, effects, processes=PROCESSES, **how):
    def work(number):
        def fn(reservation):
            effects(number)
            return number

        return backend.again().reservations.run(KEY, fn, **{"on_unknown": REPEAT, "lease": 60, **how})

    return race(processes, work)


def kinds(outcomes):
    return Counter(type(one).__name__ if isinstance(one, Exception) else one for one in outcomes)


def kill_an_attempt(backend):
    def work(tell):
        def fn(reservation):
            tell("has it")
            while True:
                pass

        backend.again().reservations.run(KEY, fn, on_unknown=REPEAT, lease=60)

    child = Child(work)
    child.hear()
    child.kill()


def free_a_row(backend):
    def refuse(reservation):
        raise Refused

    with pytest.raises(Refused):
        backend.reservations.run(KEY, refuse, on_unknown=REPEAT, lease=60, not_done=Refused)


@pytest.mark.parametrize("row", ["fresh", "freed", "lapsed", "lapsed, verified"])
def test_one_of_forty_does_the_effect(backend, clock, effects, row):
    if row == "freed":
        free_a_row(backend)
    elif row.startswith("lapsed"):
        kill_an_attempt(backend)
        clock.move(61)
    policy = verify(lambda r: NOT_DONE) if "verified" in row else REPEAT
    outcomes = run_all(backend, effects, on_unknown=policy)
    (winner,) = effects.all()
    assert set(kinds(outcomes)) <= {int(winner), "Busy"}
    assert backend.row()["state"] == "done"


@pytest.mark.parametrize(
    ("policy", "end"), [(REFUSE, "unknown"), (verify(lambda r: CANNOT_SAY), "unknown"), (ASSUME_DONE, "done")]
)
def test_of_many_that_find_a_dead_attempt_none_does_what_its_policy_forbids(backend, clock, effects, policy, end):
    kill_an_attempt(backend)
    clock.move(61)
    outcomes = run_all(backend, effects, FEW, on_unknown=policy)
    assert effects.all() == []
    assert set(kinds(outcomes)) <= {None, "OutcomeUnknown", "Busy"}
    assert any(isinstance(one, (OutcomeUnknown, type(None))) for one in outcomes)
    assert backend.row()["state"] == end


def test_whoever_comes_again_when_told_to_gets_the_result(backend, effects):
    outcomes = run_all(backend, effects)
    again = run_all(backend, effects, FEW)
    assert len(effects.all()) == 1
    assert any(isinstance(one, int) for one in outcomes)
    assert set(kinds(again)) == {int(effects.all()[0])}
    assert not [one for one in outcomes if isinstance(one, Busy) and one.retry_after > 60]


def test_of_many_threads_with_one_key_one_does_the_effect(backend, effects):
    """All of them share the reservations, and none another's connection."""
    start = threading.Barrier(FEW)

    def run(number):
        start.wait(30)
        try:
            return backend.reservations.run(KEY, lambda r: effects(number) or number, on_unknown=REPEAT, lease=60)
        except Busy as exc:
            return exc
        finally:
            backend.end_thread()

    with ThreadPoolExecutor(FEW) as pool:
        outcomes = list(pool.map(run, range(FEW)))
    (winner,) = effects.all()
    assert set(kinds(outcomes)) <= {int(winner), "Busy"}
    assert backend.row()["state"] == "done"


@pytest.mark.parametrize("isolation", ["the default", "REPEATABLE READ", "REPEATABLE READ, which has read"])
def test_of_forty_transactions_one_writes_the_marker(backend, isolation):
    if backend.name == "sqlite" and isolation != "the default":
        pytest.skip("SQLite has one level of isolation")
    level, _, reads = isolation.partition(",")

    def work(number):
        own = backend.again()
        with own.transaction(None if level == "the default" else level) as tx:
            if reads:
                own.words(tx)
            did = own.reservations.once(KEY, tx=tx)
            if did:
                own.write(tx, str(number))
            return did

    assert Counter(race(PROCESSES, work)) == {True: 1, False: PROCESSES - 1}
    assert len(backend.words()) == 1


def test_of_forty_transactions_one_makes_the_row(backend):
    def work(number):
        own = backend.again()
        with own.transaction() as tx:
            line, created = own.reservations.insert_once(tx, own.Line, {"order": 1, "sku": "a"}, on=["order", "sku"])
            return line.id, created

    found = Counter(race(PROCESSES, work))
    assert sorted(found.values()) == [1, PROCESSES - 1]
    assert len({line for line, _ in found}) == 1
