"""The soak itself, for a short while, with a seed of its own each time; ``make soak`` does it for longer."""

import random
import shutil

import pytest
from support.redis_server import ADVICE, server_program

from soak.soak import Soak
from soak.work import ENDS

#: of faults; the beginning and the rest after the last one come on top
SECONDS = 40
#: with a rule left out
SOAKS = 4


@pytest.fixture(autouse=True)
def _servers():
    assert server_program(), ADVICE


@pytest.mark.timeout(300)
def test_whatever_happens_nothing_overlaps_no_lock_is_left_no_task_is_lost_and_every_result_comes():
    report = Soak(random.randrange(10**6), SECONDS).run()
    print(report)
    assert not report.broken, str(report)
    assert sum(report.counts["Faults"].values()) >= SECONDS / 4, str(report)
    if report.kept:  # for the excused, which the report names
        shutil.rmtree(report.folder)


@pytest.mark.parametrize(
    ("mutant", "kinds", "ends", "claim"),
    [
        ("done_too_early", (), tuple(ENDS), "no run enters beside another"),
        ("no_requeue", (), ("retry",), "no call is let in beside one that has its lock"),
        ("no_confirm", ("deliver an old one again",), ("retry",), "nothing runs again that had come to its end"),
    ],
    ids=["done_too_early", "no_requeue", "no_confirm"],
)
@pytest.mark.timeout(300)
def test_without_a_rule_of_the_protocol_the_claim_that_it_guards_is_broken(mutant, kinds, ends, claim):
    """It takes a fault at the right moment, of which there are few in so short a time: one of several soaks has it."""
    for _ in range(SOAKS):
        report = Soak(random.randrange(10**6), 20, kinds=kinds, ends=ends, mutant=mutant).run()
        shutil.rmtree(report.folder, ignore_errors=True)
        if next(broken for said, broken in report.claims.items() if said.startswith(claim)):
            return
    pytest.fail(str(report))
