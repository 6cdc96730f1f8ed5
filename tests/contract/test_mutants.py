"""The model and the world see a wrong rule: each mutant of a script, or of the order of the acts, is caught, soon.

A mutant of a script is its text with one rule taken out, run on a real Redis. Programs are the same every time.
"""

import random
from dataclasses import replace
from hashlib import sha1

import pytest
from contract.twins import Twins
from contract.world import STEP_BITS, World

from celery_once_more.lock_types import LOCK_TYPES
from celery_once_more.locks import redis as redis_store
from celery_once_more.locks.scripts import Script

#: programs until which a mutant must be caught
PROGRAMS = 150
#: what is taken out -> the script, its text, what stands there instead
MUTANTS = {
    "whoever holds the lock counts as the owner": (
        "finish", "local own, i = find(rec, tonumber(ARGV[2]))", "local own, i = rec[2], 2",
    ),
    "any run of the call may finish it": ("finish", "(own[PHASE] == 'W' and '' or own[RUN]) ~= ARGV[3]", "false"),
    "any run of the call may requeue it": ("requeue", "own[RUN] ~= run", "false"),
    "any run of the call renews the lease": ("renew", "runs(own) and own[RUN] == run", "runs(own)"),
    "start ignores the hop": ("start", "if own and hop < own[HOPS][1] and not has(own[HOPS], hop)", "if false"),
    "start does not ask what is done": ("start", "if remembered(KEYS[4], KEYS[5], member)", "if false"),
    "the task id is the call at the start": (
        "start", "local own = find(rec, series)", "local own; for i = 2, #rec do own = rec[i][ID] == id and rec[i] or own end",
    ),
    "the task id is the call at the publish": (
        "acquire", "local own = find(rec, series)",
        "local own; for i = 2, #rec do own = rec[i][ID] == ARGV[4] and rec[i] or own end",
    ),
    "the old message is never spent": ("confirm", "remember(KEYS[3]", "has({}, KEYS[3]"),
    "the old message stays good": ("confirm", "table.remove(own[HOPS], i)", "break"),
    "the call is done when it is requeued": (
        "requeue", "return 'kept'\n", "remember(KEYS[3], KEYS[4], ARGV[9], 3600000) return 'kept'\n",
    ),
    "a busy lock is taken": ("start", "if alive then return", "if false then return"),
    "a held lock is taken": ("start", "if n >= tonumber(ARGV[6]) then", "if false then"),
    "a busy lock is freed": (
        "start", "if alive then return", "if alive then redis.call('DEL', KEYS[1]); redis.call('ZREM', KEYS[2], digest); return",
    ),
    "release frees a lock that runs": ("release", "own[PHASE] ~= 'W'", "false"),
    "release ignores the hop": ("release", "own[HOPS][1] ~= tonumber(ARGV[3])", "false"),
    "finish remembers nothing": ("finish", "remember(KEYS[3]", "has({}, KEYS[3]"),
    "a waiting holder is no hindrance to a publish": ("acquire", "nil, ARGV[7], true)", "nil, 'R', true)"),
    "a lapsed holder is never freed": ("acquire", "sweep(rec)\n", "{}, false\n"),
    "the token stands still": ("start", "next_token(KEYS[3])", "tonumber(redis.call('GET', KEYS[3]) or next_token(KEYS[3]))"),
    "acquire does not recognise itself": (
        "acquire", "own[PHASE] == 'W' and own[HOPS][1] == hop and 0 or tonumber(ARGV[6])", "tonumber(ARGV[6])",
    ),
    "start does not recognise itself": ("start", "if alive and own[RUN] == run then return", "if false then return"),
    "requeue does not recognise itself": (
        "requeue", "if own and own[PHASE] == 'W' and own[RUN] == run and own[HOPS][1] >= new then return 'kept' end",
        "if own and own[PHASE] == 'W' then return 'lost' end",
    ),
    "a run that freed its lock is forgotten": ("free", "own[PHASE], own[STOP] = 'F', 0", "table.remove(rec, i)"),
    "whoever asks frees a run": ("free", "if own[RUN] ~= ARGV[4] then return 0 end", ""),
    "the end of a run ends its period": ("finish", "if kept(own, true) then", "if false then"),
    "a lapse ends the period": ("acquire", "if not kept(h) then", "if true then"),
    "a period is over when its run is": ("acquire", "h[STOP] > 0 and h[STOP] <= now", "false"),
    "one runs at a time, whatever the limit": ("start", "if n >= tonumber(ARGV[6]) then", "if n >= 1 then"),
}  # fmt: skip
#: the lock in whose programs it shows
LOCKS = {
    "the end of a run ends its period": "until_expired",
    "a lapse ends the period": "until_expired",
    "a period is over when its run is": "until_expired",
    "one runs at a time, whatever the limit": "while_executing",
}
#: what has to happen more often than elsewhere
WEIGHTS = {
    "release ignores the hop": {"revoke": 25, "copy": 20},
    "release frees a lock that runs": {"revoke": 25, "copy": 20},
    "whoever asks frees a run": {"free": 30, "outlive": 30},
    "a run that freed its lock is forgotten": {"free": 30},
    "a period is over when its run is": {"age": 40, "outlive": 20},
}
#: orders of the acts
COMPOSITIONS = ["no confirm", "drop what is busy"]


def caught(twins, **how):
    """What the first program that sees something says; ``None`` when none of them does."""
    for number in range(PROGRAMS):
        chance = random.Random(number)
        program = [chance.getrandbits(STEP_BITS) for _ in range(chance.randint(10, 40))]
        try:
            World(twins, early=(0, 4, 8, 2)[number % 4], **how).play(program)
        except AssertionError as exc:
            return str(exc)
    return None


@pytest.fixture(scope="module")
def twins(redis_server):
    return Twins(redis_server, "mutants-of-the-scripts")


def test_without_a_mutant_the_same_programs_find_nothing(twins):
    assert caught(twins) is None


@pytest.mark.parametrize("name", MUTANTS)
def test_a_script_without_its_rule_is_caught(name, twins, monkeypatch):
    act, text, instead = MUTANTS[name]
    mutant = Script(act)
    assert mutant.text.count(text) == 1, f"{act} has no such rule any more: {text}"
    mutant.text = mutant.text.replace(text, instead)
    mutant.sha = sha1(mutant.text.encode()).hexdigest()
    whole = redis_store.script
    monkeypatch.setattr(redis_store, "script", lambda asked: mutant if asked == act else whole(asked))
    lock = replace(LOCK_TYPES[LOCKS.get(name, "until_executed")], limit=2 if "limit" in name else 1)
    assert caught(twins, weights=WEIGHTS.get(name), lock=lock), f"{PROGRAMS} programs, and nothing was seen"


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_acts_in_a_wrong_order_are_caught(name, twins):
    assert caught(twins, composition=name), f"{PROGRAMS} programs, and nothing was seen"
