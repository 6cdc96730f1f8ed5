"""Care for rows: what a person sees and says, and what is old enough to go."""

from datetime import datetime, timedelta, timezone

import pytest
from support.waiting import eventually

from celery_once_more import ConfigurationError
from celery_once_more.reservations import (
    REFUSE,
    REPEAT,
    Busy,
    LostReservation,
    OutcomeUnknown,
    PreviouslyFailed,
    ReservationError,
)

KEY = ("charge", 42)
DAY = 24 * 3600


class Refused(Exception):
    pass


def run(reservations, key=KEY, error=None, result="ch_1", **how):
    def fn(reservation):
        if error is not None:
            raise error
        return result

    return reservations.run(key, fn, **{"on_unknown": REFUSE, "lease": 60, **how})


def leave_unknown(reservations, key=KEY):
    with pytest.raises(ZeroDivisionError):
        run(reservations, key, ZeroDivisionError())


# What nobody knows


def test_what_nobody_knows_is_listed_with_what_names_it(reservations, backend):
    keys = ["text", 42, ("charge", 42), ("é", "a")]
    for key in keys:
        leave_unknown(reservations, key)
    run(reservations, "done")
    listed = reservations.unknowns()
    named = {one.dedup_key: one.key for one in listed}
    of_rows = [named.pop(row["dedup_key"], "done") for row in backend.rows()]
    assert sorted(of_rows, key=str) == sorted([*keys, "done"], key=str)
    assert not named
    assert [one.attempts for one in listed] == [1] * 4
    assert abs(listed[0].since - datetime.now(timezone.utc)) < timedelta(minutes=5)
    assert listed == sorted(listed, key=lambda one: one.since)  # two of one millisecond in any order
    assert reservations.unknowns(limit=2) == listed[:2]


def test_a_lapsed_attempt_that_nobody_has_followed_is_listed_as_well(reservations, clock):
    def late(reservation):
        assert reservations.unknowns() == []
        clock.move(61)
        assert [one.key for one in reservations.unknowns()] == [KEY]

    with pytest.raises(LostReservation):
        reservations.run(KEY, late, on_unknown=REFUSE, lease=60)


# What a person says


def test_a_person_says_that_it_was_done(reservations):
    leave_unknown(reservations)
    reservations.resolve(KEY, done={"id": "ch_0"})
    assert run(reservations) == {"id": "ch_0"}
    assert reservations.unknowns() == []


@pytest.mark.parametrize("result", [None, False, "", []], ids=repr)
def test_done_may_have_any_result(reservations, result):
    leave_unknown(reservations)
    reservations.resolve(KEY, done=result)
    assert run(reservations) == result


def test_a_person_says_that_it_was_not_done(reservations, backend):
    leave_unknown(reservations)
    token = backend.row()["token"]
    reservations.resolve(KEY, not_done=True)
    assert run(reservations) == "ch_1"
    assert backend.row()["token"] > token


def test_saying_it_twice_is_as_good_as_once(reservations):
    leave_unknown(reservations)
    for _ in range(2):
        reservations.resolve(KEY, done="ch_0")
    for key in ("a", "b"):
        leave_unknown(reservations, key)
        for _ in range(2):
            reservations.resolve(key, not_done=True)


def test_an_attempt_that_a_person_has_spoken_for_completes_nothing(reservations, backend, clock):
    def late(reservation):
        clock.move(61)
        reservations.resolve(KEY, done="a person's")
        return "the zombie's"

    with pytest.raises(LostReservation):
        reservations.run(KEY, late, on_unknown=REPEAT, lease=60, save=backend.write)
    assert (run(reservations), backend.words()) == ("a person's", [])


def test_what_is_known_or_running_cannot_be_resolved(reservations):
    run(reservations)
    with pytest.raises(ReservationError, match="it is done"):
        reservations.resolve(KEY, not_done=True)
    with pytest.raises(ReservationError, match="it is done"):
        reservations.resolve(KEY, done="another")
    with pytest.raises(ReservationError, match="no such row"):
        reservations.resolve("never seen", not_done=True)
    with reservations.reserve("running", on_unknown=REPEAT, lease=60), pytest.raises(Busy):
        reservations.resolve("running", done=None)


@pytest.mark.parametrize("said", [{}, {"done": 1, "not_done": True}, {"not_done": False}, {"not_done": "yes"}], ids=str)
def test_a_person_says_one_of_the_two(reservations, said):
    leave_unknown(reservations)
    with pytest.raises(ConfigurationError):
        reservations.resolve(KEY, **said)
    assert len(reservations.unknowns()) == 1


def test_what_a_person_says_must_be_json(reservations):
    leave_unknown(reservations)
    with pytest.raises(ReservationError, match="JSON"):
        reservations.resolve(KEY, done={1})
    assert len(reservations.unknowns()) == 1


# What is old enough


def test_what_is_done_failed_or_free_goes_after_thirty_days_and_the_rest_stays(reservations, backend, clock):
    run(reservations, "done")
    with backend.transaction() as tx:
        reservations.once("marker", tx=tx)
    for key, how in (("failed", "final"), ("free", "not_done")):
        with pytest.raises(Refused):
            run(reservations, key, Refused(), **{how: Refused})
    leave_unknown(reservations, "unknown")
    clock.move(29 * DAY)
    run(reservations, "young")
    assert reservations.purge() == 0
    clock.move(2 * DAY)
    assert reservations.purge() == 4
    assert {row["label"] for row in backend.rows()} == {'"unknown"', '"young"'}
    with pytest.raises(OutcomeUnknown):
        run(reservations, "unknown")


def test_a_running_row_is_never_purged(reservations, backend, clock):
    def late(reservation):
        clock.move(100 * DAY)
        assert reservations.purge(older_than=1) == 0

    with pytest.raises(LostReservation):
        reservations.run(KEY, late, on_unknown=REPEAT, lease=60)
    assert len(backend.rows()) == 1


def test_purging_goes_by_batches_until_nothing_old_is_left(reservations, backend, clock):
    for number in range(7):
        run(reservations, number)
    clock.move(DAY)
    assert reservations.purge(older_than=timedelta(hours=1), batch=2) == 7
    assert backend.rows() == []


def test_tokens_do_not_fall_over_a_purge(reservations, backend, clock):
    tokens = []
    for _ in range(3):
        reservations.run(KEY, lambda r: tokens.append(r.token), on_unknown=REPEAT, lease=60)
        clock.move(DAY)
        reservations.purge(older_than=60)
    assert len(tokens) == 3
    assert tokens == sorted(tokens)


def test_rows_go_by_the_databases_clock(reservations):
    run(reservations)
    eventually(lambda: reservations.purge(older_than=0.001), what="the row to be a millisecond old")


@pytest.mark.parametrize("said", [{"older_than": 0}, {"older_than": "30 days"}, {"batch": 0}, {"batch": True}], ids=str)
def test_a_wrong_purge_is_refused(reservations, said):
    with pytest.raises(ConfigurationError):
        reservations.purge(**said)


def test_a_failure_is_forgotten_when_it_is_purged(reservations, clock):
    with pytest.raises(Refused):
        run(reservations, error=Refused(), final=Refused)
    with pytest.raises(PreviouslyFailed):
        run(reservations)
    clock.move(DAY)
    reservations.purge(older_than=60)
    assert run(reservations) == "ch_1"
