"""An owner that is killed, or frozen while another goes on, between any two of its steps: no local write is doubled, ever."""

import os
import signal

import pytest
from support.forked import Child
from support.waiting import eventually

from celery_once_more import crash
from celery_once_more.reservations import REPEAT, Busy, LostReservation, persist

KEY = ("charge", 42)
#: of one call: where it can end
POINTS = [
    "before the claim", "before commit 1", "after the claim", "before the effect", "after the effect", "before the completion",
    "in the writes", "before commit 2", "after the completion",
]  # fmt: skip
#: where the owner holds the row's lock in the database itself
LOCKED = {"before commit 1", "in the writes", "before commit 2"}


class Ends:
    """Sends this process a signal at one of the points."""

    def __init__(self, point, signum):
        self.point, self.signum, self.commits = point, signum, 0

    def __call__(self, point):
        if point == self.point:
            os.kill(os.getpid(), self.signum)

    def reach(self, when, kind, what, *, key):
        self(f"{when} the {kind}")

    def ahead_s(self):
        return 0.0

    def commit(self):
        self.commits += 1
        self(f"before commit {self.commits}")


@pytest.fixture
def far_side(tmp_path):
    """One that honours a deduplication key: a file is one effect, however often it is asked for."""

    class FarSide:
        def charge(self, reservation):
            (tmp_path / f"{reservation.dedup_key}.charge").touch()
            return "ch_1"

        def charges(self):
            return len(list(tmp_path.glob("*.charge")))

    return FarSide()


def deliver(backend, far_side, reached=lambda point: None):
    def charge(reservation):
        reached("before the effect")
        charged = far_side.charge(reservation)
        reached("after the effect")
        return charged

    def save(tx, result):
        backend.write(tx, result)
        reached("in the writes")

    return backend.reservations.run(KEY, charge, on_unknown=REPEAT, lease=60, save=save)


def owner(backend, far_side, point, signum):
    def work(_):
        ends, own = Ends(point, signum), backend.again()
        crash.watcher = ends
        own.watch(commit=ends.commit)
        try:
            return deliver(own, far_side, ends)
        except LostReservation:
            return "lost"

    return Child(work)


@pytest.mark.parametrize("point", POINTS)
def test_whoever_comes_after_a_killed_owner_brings_it_to_its_end(backend, clock, far_side, point):
    child = owner(backend, far_side, point, signal.SIGKILL)
    child.process.join(60)
    assert child.process.exitcode == -signal.SIGKILL
    clock.move(61)
    assert [deliver(backend, far_side) for _ in range(2)] == ["ch_1"] * 2
    assert (backend.words(), far_side.charges()) == (["ch_1"], 1)


@pytest.mark.parametrize("point", [point for point in POINTS if point not in LOCKED])
def test_a_frozen_owner_that_is_thawed_after_another_went_on_doubles_nothing(backend, clock, far_side, point):
    child = owner(backend, far_side, point, signal.SIGSTOP)
    eventually(child.frozen, what=f"the owner to stand {point}")
    clock.move(61)
    assert deliver(backend, far_side) == "ch_1"
    child.thaw()
    assert child.end() in ("lost", "ch_1")
    assert (backend.words(), far_side.charges()) == (["ch_1"], 1)


@pytest.mark.parametrize("point", sorted(LOCKED))
def test_another_does_not_wait_for_ever_for_an_owner_that_is_frozen_in_its_transaction(
    backend, clock, far_side, point, monkeypatch
):
    monkeypatch.setattr(persist, "PATIENCE_S", 1.0)
    child = owner(backend, far_side, point, signal.SIGSTOP)
    eventually(child.frozen, what=f"the owner to stand {point}")
    clock.move(61)
    with pytest.raises(Busy):
        deliver(backend, far_side)
    child.thaw()
    assert child.end() == "ch_1"
    assert deliver(backend, far_side) == "ch_1"
    assert (backend.words(), far_side.charges()) == (["ch_1"], 1)
