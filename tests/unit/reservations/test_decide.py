"""What a call may do with a row: every state, under every policy."""

import itertools

import pytest

from celery_once_more.reservations.decide import Assume, Failed, Mine, Mismatch, Park, Stored, Take, Wait, decide
from celery_once_more.reservations.policy import ASSUME_DONE, REFUSE, REPEAT, verify
from celery_once_more.reservations.row import STATES, Row
from celery_once_more.reservations.terms import Terms

VERIFY = verify(lambda r: None)
POLICIES = [REPEAT, REFUSE, ASSUME_DONE, VERIFY]
NOW, SECOND = 1_000_000_000, 1_000_000
#: what a row can be: its state, and for ``running`` whether its lease has ended
KINDS = ["alive", "lapsed", *(state for state in STATES if state != "running")]


def terms(policy=REPEAT, *, within=3600 * SECOND, takeovers=5, fingerprint=None):
    return Terms(
        policy=policy, lease_us=60 * SECOND, repeat_within_us=within, max_takeovers=takeovers, fingerprint=fingerprint,
        not_done=(), final=(),
    )  # fmt: skip


def row(kind, *, takeovers=0, age=60 * SECOND, fingerprint=None, attempt="another"):
    state = "running" if kind in ("alive", "lapsed") else kind
    lease_until = {"alive": NOW + 12 * SECOND, "lapsed": NOW}.get(kind, 0)
    return Row(state, 7, attempt, takeovers, NOW - age, lease_until, fingerprint, None, NOW)


PARK = "park"
#: kind of row -> what each policy does
TABLE = {
    "alive": [Wait(12.0)] * 4,
    "free": [Take(0, in_doubt=False)] * 4,
    "done": [Stored()] * 4,
    "failed": [Failed()] * 4,
    "lapsed": [Take(1, in_doubt=True), PARK, Assume(), Take(1, in_doubt=True)],
    "unknown": [Take(1, in_doubt=True), PARK, Assume(), Take(1, in_doubt=True)],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_each_state_under_each_policy(kind, policy):
    decided, expected = decide(row(kind), "mine", terms(policy)), TABLE[kind][POLICIES.index(policy)]
    assert decided == expected or (expected == PARK and isinstance(decided, Park))


def test_the_table_is_of_every_state():
    assert {"running" if kind in ("alive", "lapsed") else kind for kind in TABLE} == set(STATES)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize(("stored", "given"), list(itertools.product([None, "a", "b"], repeat=2)))
def test_another_payload_comes_before_everything(kind, policy, stored, given):
    decided = decide(row(kind, fingerprint=stored), "mine", terms(policy, fingerprint=given))
    assert (decided == Mismatch()) == ({stored, given} == {"a", "b"})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_an_attempt_knows_its_own_row_again_and_only_while_it_runs(kind, policy):
    """Also one whose lease has ended meanwhile: nobody has taken it."""
    assert (decide(row(kind, attempt="mine"), "mine", terms(policy)) == Mine()) == (kind in ("alive", "lapsed"))


@pytest.mark.parametrize("kind", ["lapsed", "unknown"])
@pytest.mark.parametrize(
    ("takeovers", "most", "repeats"), [(0, 0, False), (0, 1, True), (1, 1, False), (4, 5, True), (5, 5, False)]
)
def test_repeat_counts_takeovers(kind, takeovers, most, repeats):
    decided = decide(row(kind, takeovers=takeovers), "mine", terms(takeovers=most))
    assert decided == (Take(takeovers + 1, in_doubt=True) if repeats else decided)
    assert isinstance(decided, Park) != repeats


@pytest.mark.parametrize("kind", ["lapsed", "unknown"])
@pytest.mark.parametrize(
    ("age", "within", "repeats"), [(99, 100, True), (100, 100, True), (101, 100, False), (10**18, None, True)]
)
def test_repeat_looks_at_the_first_attempts_age(kind, age, within, repeats):
    assert isinstance(decide(row(kind, age=age), "mine", terms(within=within)), Take) == repeats


@pytest.mark.parametrize("policy", [VERIFY, ASSUME_DONE], ids=repr)
def test_the_other_policies_look_at_neither(policy):
    assert not isinstance(decide(row("unknown", takeovers=99, age=10**18), "mine", terms(policy, takeovers=0, within=1)), Park)


@pytest.mark.parametrize("kind", ["free", "done", "failed", "alive"])
def test_where_nothing_is_in_doubt_repeat_has_no_bounds(kind):
    assert not isinstance(decide(row(kind, takeovers=99, age=10**18), "mine", terms(takeovers=0, within=1)), Park)
