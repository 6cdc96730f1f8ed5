"""What a dead attempt leaves, what each policy makes of it, and what an attempt that comes too late can still do: nothing."""

from datetime import timedelta

import pytest
from contract.reservations.effects import KEY, Effect, Refused, die_in_the_effect
from support.ids import plainly

from celery_once_more.reservations import (
    ASSUME_DONE,
    CANNOT_SAY,
    NOT_DONE,
    REFUSE,
    REPEAT,
    Busy,
    Done,
    LostReservation,
    OutcomeUnknown,
    ReservationError,
    verify,
)

# What a dead attempt leaves


def test_a_killed_attempt_holds_the_key_until_its_lease_ends(backend, reservations, clock):
    die_in_the_effect(backend)
    with pytest.raises(Busy):
        reservations.run(KEY, Effect(), on_unknown=REPEAT, lease=60)
    clock.move(61)
    assert reservations.run(KEY, Effect(), on_unknown=REPEAT, lease=60) == "ch_1"


def test_repeat_repeats_with_the_same_deduplication_key_and_a_greater_token(backend, reservations, clock):
    token = die_in_the_effect(backend)
    clock.move(61)
    effect = Effect()
    reservations.run(KEY, effect, on_unknown=REPEAT, lease=60)
    (seen,) = effect.seen
    assert seen.token > token
    assert seen.takeovers == 1
    assert seen.headers() == {"Idempotency-Key": backend.row()["dedup_key"]}


def test_refuse_leaves_it_to_a_person(backend, reservations, clock):
    die_in_the_effect(backend)
    clock.move(61)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            reservations.run(KEY, Effect(), on_unknown=REFUSE, lease=60)
    (unknown,) = reservations.unknowns()
    assert (unknown.key, unknown.attempts) == (KEY, 1)


def test_assume_done_counts_it_as_done_with_the_callers_writes(backend, reservations, clock):
    die_in_the_effect(backend)
    clock.move(61)
    effect = Effect()
    for _ in range(2):
        save = lambda tx, result: backend.write(tx, f"result {result}")  # noqa: E731
        assert reservations.run(KEY, effect, on_unknown=ASSUME_DONE, lease=60, save=save) is None
    assert (effect.times, backend.words(), backend.row()["state"]) == (0, ["result None"], "done")


@pytest.mark.parametrize(("answer", "times", "result"), [(Done("ch_0"), 0, "ch_0"), (NOT_DONE, 1, "ch_1")], ids=plainly)
def test_verify_asks_the_far_side(backend, reservations, clock, answer, times, result):
    die_in_the_effect(backend)
    clock.move(61)
    effect, asked = Effect(), []
    policy = verify(lambda r: asked.append(r.dedup_key) or answer)
    assert reservations.run(KEY, effect, on_unknown=policy, lease=60, save=backend.write) == result
    assert (effect.times, asked, backend.words()) == (times, [backend.row()["dedup_key"]], [result])


def test_verify_that_cannot_say_leaves_it_to_a_person(backend, reservations, clock):
    die_in_the_effect(backend)
    clock.move(61)
    effect = Effect()
    for _ in range(7):  # more than the takeovers that REPEAT has
        with pytest.raises(OutcomeUnknown):
            reservations.run(KEY, effect, on_unknown=verify(lambda r: CANNOT_SAY), lease=60)
    assert (effect.times, [u.attempts for u in reservations.unknowns()]) == (0, [1])


@pytest.mark.parametrize(
    ("answer", "error"), [(None, ReservationError), (True, ReservationError), (Refused(), Refused)], ids=plainly
)
def test_verify_that_answers_wrongly_or_raises_does_nothing(backend, reservations, clock, answer, error):
    die_in_the_effect(backend)
    clock.move(61)
    effect = Effect()

    def ask(reservation):
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(error):
        reservations.run(KEY, effect, on_unknown=verify(ask), lease=60)
    assert (effect.times, backend.row()["state"]) == (0, "unknown")


def test_repeat_ends_where_the_far_side_forgets_the_key(backend, reservations, clock):
    die_in_the_effect(backend)
    clock.move(3601)
    with pytest.raises(OutcomeUnknown, match="remembers the key for 3600 s"):
        reservations.run(KEY, Effect(), on_unknown=REPEAT, repeat_within=timedelta(hours=1), lease=60)
    assert reservations.run(KEY, Effect(), on_unknown=REPEAT, repeat_within=None, lease=60) == "ch_1"


def test_repeat_ends_after_so_many_takeovers(reservations, backend):
    effect = Effect(error=ValueError("?"))
    for _ in range(3):
        with pytest.raises(ValueError, match=r"\?"):
            reservations.run(KEY, effect, on_unknown=REPEAT, max_takeovers=2, lease=60)
    with pytest.raises(OutcomeUnknown, match="3 attempts"):
        reservations.run(KEY, effect, on_unknown=REPEAT, max_takeovers=2, lease=60)
    assert effect.times == 3


def test_an_attempt_that_did_nothing_does_not_speak_for_the_one_before_it(reservations, backend):
    with pytest.raises(ValueError, match=r"\?"):
        reservations.run(KEY, Effect(error=ValueError("?")), on_unknown=REPEAT, lease=60)
    for _ in range(7):  # nor is it a takeover that failed
        with pytest.raises(Refused):
            reservations.run(KEY, Effect(error=Refused()), on_unknown=REPEAT, lease=60, not_done=Refused)
    with pytest.raises(OutcomeUnknown):
        reservations.run(KEY, Effect(), on_unknown=REFUSE, lease=60)


# Fencing


def test_whose_lease_ended_completes_nothing(backend, reservations, clock):
    with pytest.raises(LostReservation, match="lease has ended"):
        reservations.run(KEY, lambda r: clock.move(61), on_unknown=REPEAT, lease=60, save=backend.write)
    assert (backend.words(), backend.row()["state"]) == ([], "running")


def test_a_zombies_completion_is_refused_with_its_writes(backend, reservations, clock):
    def overtaken(reservation):
        clock.move(61)
        reservations.run(KEY, Effect("the other's"), on_unknown=REPEAT, lease=60, save=backend.write)
        return "the zombie's"

    with pytest.raises(LostReservation, match="another attempt"):
        reservations.run(KEY, overtaken, on_unknown=REPEAT, lease=60, save=backend.write)
    assert backend.words() == ["the other's"]
    assert reservations.run(KEY, Effect(), on_unknown=REPEAT, lease=60) == "the other's"


def test_a_zombie_completes_nothing_while_another_attempt_is_at_it(backend, reservations, clock):
    """Whose row is running, with a lease that lasts."""

    def overtaken(reservation):
        clock.move(61)
        die_in_the_effect(backend, on_unknown=REPEAT, lease=600)
        with pytest.raises(LostReservation, match="another attempt"):
            reservation.extend()
        return "the zombie's"

    with pytest.raises(LostReservation, match="another attempt"):
        reservations.run(KEY, overtaken, on_unknown=REPEAT, lease=60, save=backend.write)
    assert (backend.words(), backend.row()["state"]) == ([], "running")


def test_a_zombie_does_not_take_an_assumption_for_its_own_completion(backend, reservations, clock):
    def overtaken(reservation):
        clock.move(61)
        assert reservations.run(KEY, Effect(), on_unknown=ASSUME_DONE, lease=60) is None
        return "the zombie's"

    with pytest.raises(LostReservation, match="another attempt"):
        reservations.run(KEY, overtaken, on_unknown=ASSUME_DONE, lease=60, save=backend.write)
    assert backend.words() == []


@pytest.mark.parametrize("how", [{"not_done": Refused}, {"final": Refused}, {}], ids=str)
def test_a_zombies_error_changes_nothing(backend, reservations, clock, how):
    def overtaken(reservation):
        clock.move(61)
        reservations.run(KEY, Effect("the other's"), on_unknown=REPEAT, lease=60)
        raise Refused

    with pytest.raises(Refused):
        reservations.run(KEY, overtaken, on_unknown=REPEAT, lease=60, **how)
    assert reservations.run(KEY, Effect(), on_unknown=REPEAT, lease=60) == "the other's"


def test_a_lease_can_be_extended_while_it_lasts(backend, reservations, clock):
    def slow(reservation):
        for _ in range(3):
            clock.move(50)
            reservation.extend()
        reservation.extend(timedelta(seconds=200))
        clock.move(190)
        return "ch_1"

    assert reservations.run(KEY, slow, on_unknown=REPEAT, lease=60) == "ch_1"


def test_a_lease_that_ended_cannot_be_extended(reservations, clock):
    def slow(reservation):
        clock.move(61)
        reservation.extend()

    with pytest.raises(LostReservation):
        reservations.run(KEY, slow, on_unknown=REPEAT, lease=60)
