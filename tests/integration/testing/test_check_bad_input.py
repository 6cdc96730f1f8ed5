"""What is wrong with a check is said in one sentence, and nothing is left behind."""

import itertools
import os

import pytest
from celery import Celery

from celery_once_more.testing import CrashTestError, crash_point


@pytest.fixture
def world(tmp_path):
    """A folder as the world: ``write(name)`` adds a file, ``look()`` lists them, ``empty()`` removes them."""

    class World:
        def write(self, name):
            crash_point(f"write {name}")
            (tmp_path / name).touch()

        def look(self):
            return sorted(os.listdir(tmp_path))

        def empty(self):
            for name in self.look():
                (tmp_path / name).unlink()

    return World()


@pytest.fixture
def job(app, world):
    @app.task(name="job", acks_late=True, reject_on_worker_lost=True)
    def job(name="a"):
        world.write(name)

    return job


def refused(check, *words):
    with pytest.raises(CrashTestError) as caught:
        check()
    for word in words:
        assert word in str(caught.value)


def test_no_task(crash_points, world):
    refused(lambda: crash_points.check(print, state=world.look), "is no Celery task", "@app.task")


def test_a_task_with_arguments_that_it_does_not_take(crash_points, world, job):
    refused(lambda: crash_points.check(job, args=(1, 2), state=world.look), "'job'", "undisturbed run", "TypeError")


def test_args_that_is_no_tuple(crash_points, world, job):
    refused(lambda: crash_points.check(job, args=42, state=world.look), "args=(42,)")


def test_arguments_that_cannot_travel(crash_points, world, job):
    refused(lambda: crash_points.check(job, args=(object(),), state=world.look), "'job'", "json")


def test_a_setup_that_raises(crash_points, world, job):
    def setup():
        raise RuntimeError("no database")

    refused(lambda: crash_points.check(job, setup=setup, state=world.look), "setup raised RuntimeError: no database")


def test_a_state_that_raises(crash_points, job):
    refused(lambda: crash_points.check(job, state=lambda: 1 / 0), "state raised ZeroDivisionError")


@pytest.mark.parametrize("state", [object(), {"rows": [object()]}, (x for x in "ab"), {"key": lambda: 1}],
                         ids=["object", "in a list", "generator", "function"])  # fmt: skip
def test_a_state_that_equals_only_itself(crash_points, world, job, state):
    refused(lambda: crash_points.check(job, setup=world.empty, state=lambda: state), "equals only itself", "plain data")


def test_a_state_that_changes_between_two_undisturbed_runs(crash_points, world, job):
    turns = itertools.count(1)
    refused(lambda: crash_points.check(job, setup=world.empty, state=lambda: {"turn": next(turns)}),
            "not deterministic", "turn: 2 instead of 1", "setup")  # fmt: skip


def test_no_place_to_die(crash_points, app):
    @app.task(name="idle")
    def idle():
        return 1

    refused(lambda: crash_points.check(idle, state=lambda: 1), "'idle'", "no place", "crash_point")


async def coroutine():
    crash_point("here")


def generator():
    crash_point("here")
    yield


async def asynchronous_generator():
    crash_point("here")
    yield


@pytest.mark.parametrize("body", [coroutine, generator, asynchronous_generator])
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_body_that_celery_does_not_run(crash_points, app, body):
    made = app.task(body, name="sleeper")
    refused(lambda: crash_points.check(made, state=lambda: 1), "'sleeper'", body.__name__.replace("_", " "), "does not run")


def test_an_undisturbed_run_that_fails(crash_points, app):
    @app.task(name="broken")
    def broken():
        crash_point("here")
        raise KeyError("x")

    refused(lambda: crash_points.check(broken, state=lambda: 1), "'broken'", "undisturbed run", "FAILURE", "KeyError")


def test_an_undisturbed_run_that_hangs(crash_points, app):
    @app.task(name="hangs")
    def hangs():
        crash_point("here")
        while True:
            pass

    refused(lambda: crash_points.check(hangs, state=lambda: 1, deadline=1), "'hangs'", "its deadline of 1 s", "here")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"die": "explode"}, ["die is 'explode'", '"kill"']),
        ({"depth": 3}, ["depth is 3"]),
        ({"deadline": 0}, ["deadline is 0", "seconds"]),
        ({"deadline": None}, ["deadline is None", "seconds"]),
        ({"points": [99]}, ["no place 99", "1 to 2"]),
        ({"points": []}, ["points is []", "leave it out"]),
        ({"points": "after return"}, ["points is 'after return'", "a list"]),
        ({"points": 1}, ["points is 1", "a list"]),
        ({"points": [1.5]}, ["points has 1.5 in it", "numbers, or names"]),
        ({"points": ["after return", True]}, ["points has True in it"]),
        ({"depth": 2, "budget": 0}, ["budget is 0", "1 or more"]),
        ({"budget": "all"}, ["budget is 'all'", "1 or more"]),
        ({"parked": [ValueError]}, ["parked is", "a tuple"]),
        ({"die": "raise", "rival": True}, ["rival=True", '"kill"']),
        ({"deaths": ["dog"]}, ["deaths", "'dog'", "'child'"]),
        ({"kwargs": [1]}, ["kwargs is [1]", "dict"]),
        ({"setup": 1}, ["setup is 1", "function"]),
        ({"state": {"a": 1}}, ["state is {'a': 1}", "function"]),
    ],
)
def test_a_wrong_option(crash_points, world, job, wrong, words):
    refused(lambda: crash_points.check(job, **{"state": world.look, "setup": world.empty, **wrong}), *words)


def test_without_fork_the_words_say_what_works(crash_points, world, job, monkeypatch):
    monkeypatch.delattr(os, "fork")
    refused(lambda: crash_points.check(job, state=world.look, die="kill"), "os.fork", 'die="raise"')
    refused(lambda: crash_points.check(job, state=world.look, rival=True), "rival=True")
    assert crash_points.check(job, setup=world.empty, state=world.look).ok


def test_a_shared_task_and_a_lazy_one_are_tasks(crash_points, world):
    app = Celery("lazy", set_as_current=False)

    @app.task(name="lazy", acks_late=True, reject_on_worker_lost=True)
    def lazy():
        world.write("a")

    assert crash_points.check(lazy, setup=world.empty, state=world.look).ok
    app.close()
