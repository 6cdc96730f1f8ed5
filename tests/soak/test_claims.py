"""The soak's own judgement: the seed decides the plan, and each claim sees what would break it."""

import itertools

import pytest

from soak import faults, verdict, work
from soak.floor import POOLS
from soak.handovers import Loss
from soak.story import Admitted, Story
from soak.timing import STALLED

WORKERS = {pool: pool for pool in POOLS}


def entered(n, at, met=0, token=None, task_id=None, worker="prefork", refused=False, step=(0, 0)):
    return {"event": "enter", "n": n, "at": at, "place": "in p", "task_id": task_id or f"c{n}", "token": token or n,
            "worker": worker, "met": met, "refused": refused, "redelivered": False, "step": step}  # fmt: skip


def left(n, at, outcome="succeeds", written=True, **more):
    return {"event": "leave", "n": n, "at": at, "outcome": outcome, "written": written, **more}


def met(n, alive):
    return {"event": "met", "n": n, "alive": alive}


def overlaps(*events):
    return list(verdict.overlaps(Story.of(events)))


def endings(*events, results, lost=None, calls=("c1",)):
    return list(verdict.endings(Story.of(events), calls, results, lost or {}))


def fault(kind, at, over, victim=None):
    return [{"event": "fault", "at": at, "kind": kind, "victim": victim},
            {"event": "fault over", "at": over, "fault": [at, kind, victim]}]  # fmt: skip


def test_a_seed_draws_the_same_faults_and_the_same_work_each_time():
    assert faults.plan(7, 60, WORKERS) == faults.plan(7, 60, WORKERS) != faults.plan(8, 60, WORKERS)
    a, b = work.calls(7, 4), work.calls(7, 4)
    assert [next(a) for _ in range(100)] == [next(b) for _ in range(100)]


def test_there_is_a_fault_every_two_seconds_and_no_worker_is_a_victim_twice_before_it_is_back():
    plan = faults.plan(7, 300, WORKERS)
    assert len(plan) == 149
    for worker in WORKERS:
        ends = [
            f.at for f in plan if f.victim == worker and f.kind in ("kill main", "kill group", "warm shutdown", "cold shutdown")
        ]
        assert all(later - earlier >= faults.BACK_AFTER for earlier, later in itertools.pairwise(ends))


def test_of_some_kinds_alone_there_are_as_many_faults():
    assert {f.kind for f in faults.plan(7, 60, WORKERS, kinds=("revoke",))} == {"revoke"}
    assert len(faults.plan(7, 60, WORKERS, kinds=("revoke",))) == 29
    assert faults.plan(7, 60, WORKERS, kinds=()) == []


def test_the_work_is_of_two_hundred_digests():
    calls = work.calls(7, 4)
    assert len({(call.task, call.key) for call in (next(calls) for _ in range(5000))}) == 200


def test_a_run_that_enters_while_another_is_inside_is_seen():
    both = entered(1, 10.0), entered(2, 11.0, met=1), left(1, 12.0, written=False)
    assert len(overlaps(*both, met(2, alive=True))) == 1


def test_the_dead_are_in_nobodys_way():
    assert not overlaps(entered(1, 10.0), entered(2, 11.0, met=1), met(2, alive=False))


def test_a_run_whose_worker_or_lock_store_stood_still_may_be_outlived_but_not_without_being_told():
    both = entered(1, 10.0), entered(2, 14.0, met=1), met(2, alive=True)
    for who in ("prefork", None):
        stood = {"event": "stall", "worker": who, "since": 10.5, "until": 10.6 + STALLED}
        assert not overlaps(*both, stood, left(1, 15.0, "LockLost", written=False, asked=14.5))
        assert len(overlaps(*both, stood, left(1, 15.0, "succeeds", written=False, asked=14.5, held=True))) == 1
    assert len(overlaps(*both, {"event": "stall", "worker": "gevent", "since": 10.5, "until": 13.0})) == 1
    assert len(overlaps(*both, {"event": "stall", "worker": None, "since": 10.5, "until": 10.6})) == 1


def test_a_flush_excuses_what_comes_after_it_and_nothing_before():
    both = entered(1, 10.0), entered(2, 14.0, met=1), met(2, alive=True), left(1, 15.0, "LockLost", written=False)

    def flush(at):
        return {"event": "flush", "since": at - 0.01, "at": at}

    assert not overlaps(*both, flush(13.5))
    assert len(overlaps(*both, flush(14.5))) == 1
    story = Story.of([entered(1, 11.0), left(1, 12.0), entered(2, 13.0), left(2, 14.0), flush(20.0)])
    assert len(list(verdict.admitted_beside(story, [let_in(1, 10.0), let_in(2, 11.5)], {}))) == 1


def test_a_token_that_does_not_grow_is_seen():
    for token in (4, 5):
        assert len(overlaps(entered(1, 10.0, token=5), entered(2, 11.0, met=1, token=token, refused=True))) == 1


def test_a_run_that_stood_still_before_it_entered_comes_too_late():
    stood = {"event": "stall", "worker": "threads", "since": 8.0, "until": 10.9}
    late = entered(2, 11.0, met=1, token=4, refused=True, worker="threads")
    assert not overlaps(entered(1, 10.0, token=5), late, stood)


def test_a_publish_that_raises_without_a_reason_or_runs_all_the_same_is_seen():
    refused = [("c1", 10.0, 12.0, "StoreUnavailable: …")]
    stall = {"event": "stall", "worker": None, "since": 9.5, "until": 12.5}
    assert len(list(verdict.outages(Story.of([]), refused))) == 1
    assert not list(verdict.outages(Story.of([stall]), refused))
    assert len(list(verdict.outages(Story.of([stall, entered(1, 13.0)]), refused))) == 1


def test_a_call_that_does_not_end_or_never_ran_is_seen():
    once = entered(1, 10.0), left(1, 11.0)
    assert not endings(*once, results={"c1": ("SUCCESS", "c1 1")})
    assert len(endings(*once, results={})) == 1
    assert len(endings(*once, results={"c1": ("RETRY", "")})) == 1
    assert len(endings(results={"c1": ("SUCCESS", "c1 1")})) == 1


def test_a_call_ends_as_its_last_run_did():
    twice = entered(1, 10.0), left(1, 11.0, "retries"), entered(2, 12.0, task_id="c1"), left(2, 13.0)
    assert not endings(*twice, results={"c1": ("SUCCESS", "c1 2")})
    assert len(endings(*twice, results={"c1": ("SUCCESS", "c1 1")})) == 1
    assert len(endings(*twice, results={"c1": ("FAILURE", "c1 1")})) == 1


def test_the_last_word_may_be_that_of_a_run_whose_worker_stood_still_before_it_told_it():
    both = (entered(1, 10.0), left(1, 11.0, "fails"),
            entered(2, 13.0, task_id="c1", worker="threads"), left(2, 13.1, "fails"))  # fmt: skip
    first, stood = {"c1": ("FAILURE", "c1 1")}, {"event": "stall", "worker": "prefork", "since": 11.1, "until": 14.0}
    assert len(endings(*both, results=first)) == 1
    assert not endings(*both, stood, results=first)
    assert len(endings(*both, {**stood, "worker": "gevent"}, results=first)) == 1


def test_what_kombu_lost_or_somebody_revoked_is_no_loss_of_ours():
    once = entered(1, 10.0), left(1, 11.0)
    lost = {"c1": Loss("c1", 9.0, None, "kill main prefork")}
    assert not endings(results={}, lost=lost)
    assert len(endings(*once, results={"c1": ("SUCCESS", "c1 7")}, lost=lost)) == 1
    gone = {"c1": Loss("c1", 9.0, None, None)}
    assert len(endings(results={}, lost=gone)) == len(list(verdict.lost_without_a_cause(gone))) == 1
    revoked = {"event": "revoked", "call": "c1"}
    assert not endings(revoked, results={"c1": ("REVOKED", "")})
    assert len(endings(revoked, results={})) == 1


def let_in(n, at, lock="until_executed"):
    return Admitted(f"c{n}", lock, 1, at, at + 0.01)


def test_a_publish_that_is_let_in_beside_a_call_that_has_its_lock_is_seen():
    story = Story.of([entered(1, 11.0), left(1, 12.0), entered(2, 13.0), left(2, 14.0)])
    assert len(list(verdict.admitted_beside(story, [let_in(1, 10.0), let_in(2, 11.5)], {}))) == 1
    assert not list(verdict.admitted_beside(story, [let_in(1, 10.0), let_in(2, 12.5)], {}))
    assert not list(verdict.admitted_beside(story, [let_in(n, 10.0 + n, "until_executing") for n in (1, 2)], {}))
    kill = fault("kill main", 10.5, 10.9, "prefork")
    killed = Story.of([*kill, entered(1, 13.0), left(1, 14.0)])
    for twice, seen in (((), 1), (("c1",), 0)):
        assert len(list(verdict.admitted_beside(killed, [let_in(1, 10.0), let_in(2, 12.5)], {}, twice))) == seen
    waits = Story.of([entered(1, 12.0, token=11_900_000), left(1, 13.0), entered(2, 14.0)])
    for at, seen in ((11.5, 1), (11.95, 0)):
        both = [let_in(1, 10.0, "until_executing"), let_in(2, at, "until_executing")]
        assert len(list(verdict.admitted_beside(waits, both, {}))) == seen


def test_a_run_of_what_had_ended_is_seen():
    twice = entered(1, 10.0), left(1, 11.0), entered(2, 15.0, task_id="c1")
    assert len(list(verdict.runs_again(Story.of(twice)))) == 1
    retried = entered(1, 10.0), left(1, 11.0, "retries"), entered(2, 15.0, task_id="c1", step=(1, 0))
    assert not list(verdict.runs_again(Story.of(retried)))
    old_message = entered(3, 16.0, task_id="c1")
    assert len(list(verdict.runs_again(Story.of([*retried, old_message])))) == 1
    kill = fault("kill main", 11.1, 11.2, "prefork")
    assert not list(verdict.runs_again(Story.of([*twice, *kill])))
    for elsewhere in (fault("kill main", 11.1, 11.2, "gevent"), fault("deliver again", 11.1, 11.2), fault("revoke", 10.9, 11.2)):
        assert len(list(verdict.runs_again(Story.of([*twice, *elsewhere])))) == 1


@pytest.mark.parametrize("there", [True, False])
def test_an_orphan_whose_message_runs_after_all_is_seen_unless_nobody_could_tell(there):
    freed = {"event": "orphans", "calls": ["c1"], "since": 10.0, "at": 10.1, "there": ["c1"] if there else []}
    ran = entered(1, 11.0), left(1, 12.0)
    stood = {"event": "stall", "worker": "prefork", "since": 7.0, "until": 10.5}

    def seen(*events, published=5.0, lost=(), in_between=True):
        story = Story.of([freed, *events])
        return len(list(verdict.freed_wrongly(story, [let_in(1, published)], lost, lambda *_: in_between)))

    assert seen() == 0
    assert seen(*ran) == 1
    assert seen(*ran, stood, in_between=False) == 1
    assert seen(*ran, stood) == there
    assert seen(*ran, lost=("c1",)) == there
    assert seen(*ran, published=10.05) == 0


def test_a_holder_that_a_duplicate_was_handed_and_that_does_not_end_is_seen():
    handed = [("c2", "c1")]
    assert not list(verdict.handed_over(handed, ["c1"], set(), {}))  # ``endings`` says so
    assert len(list(verdict.handed_over(handed, [], set(), {}))) == 1
    assert not list(verdict.handed_over(handed, [], {"c1"}, {}))
    assert not list(verdict.handed_over(handed, [], set(), {"c1": ("SUCCESS", "")}))


def test_a_result_that_celery_overwrote_with_the_retry_before_it_is_the_one_that_counts():
    runs = entered(1, 10.0), left(1, 11.0, "retries"), entered(2, 11.1, task_id="c1", step=(1, 0)), left(2, 11.2)
    story, done, retry = Story.of(runs), ("SUCCESS", "c1 2"), ("RETRY", None)
    assert verdict.overwritten(story, {"c1": retry}, lambda call: [done, retry]) == {"c1": done}
    assert not verdict.overwritten(story, {"c1": retry}, lambda call: [retry])
    assert not verdict.overwritten(Story.of(runs[:2]), {"c1": retry}, lambda call: [done, retry])
    revoked, gone = {"event": "revoked", "call": "c1"}, ("REVOKED", None)
    assert verdict.overwritten(Story.of([*runs[:2], revoked]), {"c1": retry}, lambda call: [gone, retry]) == {"c1": gone}
    assert not verdict.overwritten(Story.of(runs[:2]), {"c1": retry}, lambda call: [gone, retry])
