"""One store used by many at once: threads, greenlets, forked processes, and more than one reaper."""

import os
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from contract.stores import BUCKETS, THROUGH, WAIT_MS, acquire, start, store_at, through, ticket
from support.waiting import eventually

TESTS = Path(__file__).parents[1]


@pytest.fixture
def store(clean_redis):
    return store_at(clean_redis.url(0))


def together(*functions):
    """Run them in threads of their own, which begin at one moment; what they returned."""
    gate, answers = threading.Barrier(len(functions)), [None] * len(functions)

    def run(place, function):
        gate.wait(60)
        answers[place] = function()

    threads = [threading.Thread(target=run, args=item) for item in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return answers


def test_of_16_threads_that_publish_one_call_one_is_admitted_and_the_others_get_its_id(store):
    for lock in range(20):
        calls = [ticket(lock, series=n) for n in range(16)]
        answers = together(*(lambda of=of: store.acquire(of, wait_ms=WAIT_MS) for of in calls))
        admitted = [of for of, answer in zip(calls, answers, strict=True) if answer.verdict == "admitted"]
        assert len(admitted) == 1
        assert {answer.holder.task_id for answer in answers if answer.holder} == {admitted[0].task_id}


def test_of_16_threads_that_start_one_message_one_runs(store):
    for lock in range(20):
        of = ticket(lock)
        acquire(store, of)
        answers = together(*(lambda n=n, of=of: start(store, of, f"run-{n}") for n in range(16)))
        assert Counter(answers) == {"run": 1, "busy": 15}


def test_16_threads_do_not_read_each_others_answers(store):
    def work(thread):
        told = set()
        for n in range(40):
            mine, other = ticket((thread, n)), ticket((thread, n), series=2)
            acquire(store, mine)
            told.add(store.acquire(other, wait_ms=WAIT_MS).holder.task_id == mine.task_id)
            told.add(tuple(through(store, mine)) == ("admitted", "run", "freed"))
        return told

    assert together(*(lambda n=n: work(n) for n in range(16))) == [{True}] * 16


def test_tokens_of_one_lock_grow_whoever_runs(store):
    of, tokens = ticket(), []
    for n in range(50):
        call = ticket(series=n)
        answers = together(*(partial(store.start, call, run=run, lease_ms=WAIT_MS, redelivered=False) for run in ("a", "b")))
        tokens += [answer.token for answer in answers if answer.token]
        store.finish(call, run="a" if answers[0].token else "b")
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 50
    assert start(store, of, "late") == "done"


def test_a_fork_makes_connections_of_its_own_and_both_processes_go_on(store, clean_redis):
    """The parent's connection is open, and in use, when the child is made."""
    of = ticket("parent")
    acquire(store, of)
    busy, stop = threading.Event(), threading.Event()

    def use():
        while not stop.is_set():
            start(store, of)
            busy.set()

    thread = threading.Thread(target=use)
    thread.start()
    assert busy.wait(60)
    children = []
    for child in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                fine = all(through(store, ticket((child, n))) == THROUGH for n in range(50))
                os._exit(0 if fine else 1)
            finally:
                os._exit(2)
        children.append(pid)
    mine = [through(store, ticket(("mine", n))) for n in range(50)]
    ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    stop.set()
    thread.join(60)
    assert (ended, mine) == ([0] * 4, [THROUGH] * 50)
    assert store.finish(of, run="run") == "freed"


def test_threads_use_as_few_connections_as_there_are_acts_at_once(clean_redis):
    """Not one for each thread that ever was."""
    store = store_at(clean_redis.url(0), client_name="counted")
    for n in range(30):
        together(lambda n=n: through(store, ticket(n)))
    assert len([c for c in clean_redis.client(0).client_list() if c["name"] == "counted"]) == 1


GREENLETS = """
    from gevent import monkey
    monkey.patch_all()
    import sys
    import gevent
    from contract.stores import THROUGH, WAIT_MS, acquire, store_at, through, ticket

    store = store_at(sys.argv[1])
    at_once = 0
    most = 0

    def work(n):
        global at_once, most
        at_once += 1
        most = max(most, at_once)
        answers = [through(store, ticket((n, i))) == THROUGH for i in range(10)]
        answers.append(acquire(store, ticket("contested", series=n)))
        at_once -= 1
        return answers

    jobs = [gevent.spawn(work, n) for n in range(50)]
    gevent.joinall(jobs, timeout=60, raise_error=True)
    answers = [answer for job in jobs for answer in job.value]
    print(answers.count(True), answers.count(False), answers.count("admitted"), answers.count("refused"), most > 1)
"""


def test_greenlets_take_turns_while_they_wait_for_answers(clean_redis):
    program = [sys.executable, "-c", textwrap.dedent(GREENLETS), clean_redis.url(0)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    ended = subprocess.run(program, capture_output=True, text=True, timeout=120, env=env, check=False)
    assert (ended.stdout.split(), ended.stderr) == (["500", "0", "1", "49", "True"], "")


def test_a_time_limit_in_the_middle_of_an_act_does_not_mix_up_answers(clean_redis):
    """A signal raises wherever the program is; the answer that was on its way must not be taken for the next act's."""
    program = textwrap.dedent("""
        import signal, sys
        from contract.stores import THROUGH, store_at, through, ticket

        class Limit(Exception):
            pass

        def limit(*_):
            raise Limit

        signal.signal(signal.SIGALRM, limit)
        store, hit, n = store_at(sys.argv[1]), 0, 0
        while hit < 100:
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.00007 * (n % 20))
            try:
                while True:
                    n += 1
                    through(store, ticket(n))
            except Limit:
                hit += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            n += 1
            assert through(store, ticket(n)) == THROUGH, "another act's answer"
        print("fine")
    """)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    ended = subprocess.run([sys.executable, "-c", program, clean_redis.url(0)], capture_output=True, text=True,
                           timeout=120, env=env, check=False)  # fmt: skip
    assert ended.stdout.strip() == "fine", ended.stderr


def test_two_reapers_at_once_free_each_lock_once(store, clean_redis):
    for n in range(300):
        acquire(store, ticket(n), wait_ms=1)
    other = store_at(clean_redis.url(0))
    eventually(lambda: store.look(ticket(299), run="")[0] == "none", what="the last one has lapsed")
    first, second = together(lambda: store.reap(BUCKETS, limit=1000), lambda: other.reap(BUCKETS, limit=1000))
    freed = [held.digest for held in first.lapsed + second.lapsed]
    assert sorted(freed) == sorted(ticket(n).digest for n in range(300))
