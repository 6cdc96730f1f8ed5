"""Random programs on every database layer, the same every time: what must hold holds after each of their steps."""

from collections import Counter

import pytest
from contract.reservations.machine import Machine
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

#: programs, and steps in each; the more of them where they are fastest
PROGRAMS = {("sqlalchemy", "sqlite"): 300}
OTHERS = 100
STEPS = 30
#: what must have happened now and then, or the programs look at nothing
LEAST = {
    "begun": 20, "taken over": 10, "completed": 5, "lost": 8, "delivered": 20, "Busy": 10, "OutcomeUnknown": 10, "resolved": 10,
    "purged": 10, "PreviouslyFailed": 3, "done before": 5,
}  # fmt: skip


@pytest.mark.timeout(300)
def test_whatever_happens_no_effect_and_no_write_is_doubled(backend, clock):
    class Here(Machine):
        pass

    Here.backend, Here.clock, Here.seen = backend, clock, Counter()
    here = (backend.layer, backend.name)
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=PROGRAMS.get(here, OTHERS), stateful_step_count=STEPS, derandomize=True, database=None, deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
    if here in PROGRAMS:  # which is given the most programs
        assert {what: Here.seen[what] for what, least in LEAST.items() if Here.seen[what] < least} == {}
