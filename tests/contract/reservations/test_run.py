"""``run`` and ``reserve``: an effect outside the database, under a row that is claimed before it and completed after it."""

import pytest
from contract.reservations.effects import KEY, Declined, Effect, Refused
from support.ids import plainly

from celery_once_more import ConfigurationError
from celery_once_more.reservations import (
    ASSUME_DONE,
    CANNOT_SAY,
    REFUSE,
    REPEAT,
    AlreadyDone,
    Busy,
    FingerprintMismatch,
    OutcomeUnknown,
    PreviouslyFailed,
    ReservationError,
    verify,
)

POLICIES = [REPEAT, REFUSE, ASSUME_DONE, verify(lambda r: CANNOT_SAY)]

# Done once


@pytest.mark.parametrize("policy", POLICIES, ids=plainly)
def test_the_effect_is_done_once_and_its_result_comes_again(reservations, policy):
    effect = Effect({"id": "ch_1", "lines": [1, 2.5, None, True, "é"]})
    first = reservations.run(KEY, effect, on_unknown=policy, lease=60)
    assert first == reservations.run(KEY, effect, on_unknown=policy, lease=60) == effect.result
    assert effect.times == 1


def test_a_result_is_what_json_gives_back_the_first_time_as_well(reservations):
    assert reservations.run(KEY, Effect((1, 2)), on_unknown=REPEAT, lease=60) == [1, 2]


def test_a_with_block_is_told_that_it_is_done_already(reservations):
    with reservations.reserve(KEY, on_unknown=REPEAT, lease=60) as reservation:
        reservation.result = {"id": reservation.dedup_key}
    with pytest.raises(AlreadyDone) as told, reservations.reserve(KEY, on_unknown=REPEAT, lease=60):
        pytest.fail("the body runs")
    assert told.value.result == {"id": reservation.dedup_key}


def test_other_keys_are_others(reservations):
    keys = ["42", 42, ("42",), ("charge", 42), ("charge", "42"), "é", "a'b\"c\\d%s:x", "x" * 200]
    assert [reservations.run(key, Effect(n), on_unknown=REPEAT, lease=60) for n, key in enumerate(keys)] == list(range(len(keys)))
    assert [reservations.run(key, Effect(), on_unknown=REPEAT, lease=60) for key in keys] == list(range(len(keys)))


def test_while_one_attempt_has_the_key_another_is_told_when_to_come_back(reservations):
    with reservations.reserve(KEY, on_unknown=REPEAT, lease=60):
        with pytest.raises(Busy) as told:
            reservations.run(KEY, Effect(), on_unknown=REPEAT, lease=60)
        assert 50 < told.value.retry_after <= 60


# Its own writes


def test_the_callers_writes_come_with_the_completion(backend, reservations):
    reservations.run(KEY, Effect("ch_1"), on_unknown=REPEAT, lease=60, save=backend.write)
    reservations.run(KEY, Effect("ch_2"), on_unknown=REPEAT, lease=60, save=backend.write)
    assert backend.words() == ["ch_1"]


def test_if_the_callers_writes_fail_the_completion_fails_with_them(backend, reservations):
    def save(tx, result):
        backend.write(tx, result)
        raise Refused

    effect = Effect("ch_1")
    with pytest.raises(Refused):
        reservations.run(KEY, effect, on_unknown=REPEAT, lease=60, save=save)
    assert (backend.row()["state"], backend.words()) == ("unknown", [])
    reservations.run(KEY, effect, on_unknown=REPEAT, lease=60, save=backend.write)
    assert (effect.times, backend.words()) == (2, ["ch_1"])


# Errors


def test_an_error_that_says_that_nothing_was_done_frees_the_key_at_once(reservations, backend):
    effect = Effect(error=Refused())
    for _ in range(3):
        with pytest.raises(Refused):
            reservations.run(KEY, effect, on_unknown=REFUSE, lease=60, not_done=Refused)
    assert backend.row()["state"] == "free"
    assert reservations.run(KEY, Effect(), on_unknown=REFUSE, lease=60) == "ch_1"


def test_a_final_error_is_stored_and_comes_again(reservations):
    effect = Effect(error=Declined("no money"))
    with pytest.raises(Declined):
        reservations.run(KEY, effect, on_unknown=REPEAT, lease=60, final=(Declined,))
    with pytest.raises(PreviouslyFailed) as told:
        reservations.run(KEY, effect, on_unknown=REPEAT, lease=60)
    assert (told.value.error.rpartition(".")[2], told.value.message, effect.times) == ("Declined", "no money", 1)


@pytest.mark.parametrize("error", [ValueError("?"), KeyboardInterrupt(), SystemExit(1)], ids=plainly)
def test_any_other_error_leaves_the_outcome_unknown(reservations, backend, error):
    with pytest.raises(type(error)):
        reservations.run(KEY, Effect(error=error), on_unknown=REFUSE, lease=60, not_done=Refused, final=Declined)
    assert backend.row()["state"] == "unknown"
    with pytest.raises(OutcomeUnknown):
        reservations.run(KEY, Effect(), on_unknown=REFUSE, lease=60)


@pytest.mark.parametrize("result", [{1, 2}, float("nan"), object(), "x" * (64 * 1024)], ids=lambda r: type(r).__name__)
def test_a_result_that_cannot_be_stored_is_an_error_and_the_outcome_is_unknown(reservations, backend, result):
    with pytest.raises(ReservationError, match="result"):
        reservations.run(KEY, Effect(result), on_unknown=REFUSE, lease=60, save=backend.write)
    assert (backend.row()["state"], backend.row()["result"], backend.words()) == ("unknown", None, [])


def test_a_result_of_64_kb_can_be_stored(reservations):
    result = "x" * (64 * 1024 - 2)
    reservations.run(KEY, Effect(result), on_unknown=REFUSE, lease=60)
    assert reservations.run(KEY, Effect(), on_unknown=REFUSE, lease=60) == result


# Payload


def test_another_payload_under_the_same_key_neither_runs_nor_gets_the_result(reservations, backend):
    effect = Effect()
    said = {"on_unknown": REPEAT, "lease": 60}
    reservations.run(KEY, effect, fingerprint={"amount": 5, "to": "a"}, **said)
    assert reservations.run(KEY, effect, fingerprint={"to": "a", "amount": 5}, **said) == "ch_1"
    with pytest.raises(FingerprintMismatch):
        reservations.run(KEY, effect, fingerprint={"amount": 6, "to": "a"}, **said)
    assert reservations.run(KEY, effect, **said) == "ch_1"  # who says nothing is compared with nothing
    assert effect.times == 1


@pytest.mark.parametrize("how", [{"not_done": Refused}, {"final": Refused}, {}], ids=str)
def test_another_payload_is_refused_in_every_state(reservations, how):
    with pytest.raises(Refused):
        reservations.run(KEY, Effect(error=Refused()), on_unknown=REPEAT, lease=60, fingerprint=1, **how)
    with pytest.raises(FingerprintMismatch):
        reservations.run(KEY, Effect(), on_unknown=REPEAT, lease=60, fingerprint=2)


# What is wrong with the call


@pytest.mark.parametrize(
    "key", ["", None, 1.5, (), ("a", ""), ("a", None), True, b"a", {"a"}, "x" * 256, ("a", ("b",))], ids=plainly
)
def test_what_is_no_key_is_refused_and_nothing_is_written(reservations, backend, key):
    with pytest.raises(ReservationError, match="key"):
        reservations.run(key, Effect(), on_unknown=REPEAT, lease=60)
    assert backend.rows() == []


@pytest.mark.parametrize(
    "how",
    [{"lease": None}, {"lease": 0}, {"lease": -1}, {"on_unknown": "REPEAT"}, {"on_unknown": None}, {"on_unknown": verify},
     {"on_unknown": REFUSE, "repeat_within": 5}, {"max_takeovers": -1}, {"not_done": "Refused"}, {"final": [Refused()]}],
    ids=plainly,
)  # fmt: skip
def test_wrong_terms_are_refused_and_nothing_is_written(reservations, backend, how):
    effect = Effect()
    with pytest.raises(ConfigurationError):
        reservations.run(KEY, effect, **{"on_unknown": REPEAT, "lease": 60, **how})
    assert (backend.rows(), effect.times) == ([], 0)


def test_a_missing_table_names_what_makes_it(reservations, backend):
    backend.forget_table()
    with pytest.raises(ConfigurationError, match=r"create_table\(\)"):
        reservations.run(KEY, Effect(), on_unknown=REPEAT, lease=60)
    reservations.create_table()
    reservations.create_table()
    assert reservations.run(KEY, Effect(), on_unknown=REPEAT, lease=60) == "ch_1"
