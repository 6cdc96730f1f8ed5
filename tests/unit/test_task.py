"""``UniqueTask`` as it is wired into Celery: the gate stays before the body whatever a project's own class overrides.

Runs go through Celery's own tracer, as in a worker, in this process.
"""

import copy
import pickle
import threading

import pytest
from celery import Celery, Task, signals, states
from celery.contrib.django.task import DjangoTask
from celery.result import AsyncResult, EagerResult
from pydantic import BaseModel
from support.deliveries import deliver

from celery_once_more import ConfigurationError, DuplicateDropped, LockConflict, UniqueResult, UniqueTask, current_lock
from celery_once_more import signals as ours
from celery_once_more.keeper import KeeperStep
from celery_once_more.locks import Answer, Holder
from celery_once_more.task import KEEPER

HOLDER = Holder(task_id="holder", phase="running", remaining_ms=1000)
DONE = Answer(verdict="done")
CONFLICT = Answer(verdict="conflict", holder=HOLDER)


def does_nothing():
    pass


# kinds of tasks, and what a project's own classes override

ran = []


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


def plain(app, **options):
    @app.task(base=UniqueTask, lock="until_executed", shared=False, **options)
    def body(x):
        ran.append(x)

    return body


def bound(app, **options):
    @app.task(base=UniqueTask, bind=True, lock="until_executed", shared=False, **options)
    def body(self, x):
        ran.append(x)

    return body


def autoretried(app, **options):
    return plain(app, **{"autoretry_for": (Exception,), "dont_autoretry_for": (LockConflict,), **options})


def typed(app, **options):
    class Event(BaseModel):
        id: int

    def body(x: int, event: Event | None = None):
        ran.append(x)

    return app.task(base=UniqueTask, lock="until_executed", pydantic=True, shared=False, **options)(body)


def of_class(app, *bases, body=None, **options):
    """A class-based task."""
    attributes = {
        "name": "unit.OfClass",
        "lock": "until_executed",
        "run": lambda self, x: ran.append(x),
        **(body or {}),
        **options,
    }
    return app.register_task(type("OfClass", bases or (UniqueTask,), attributes)())


def class_based(app, **options):
    return of_class(app, **options)


def class_based_autoretried(app, **options):
    return of_class(app, **{"autoretry_for": (Exception,), "dont_autoretry_for": (LockConflict,), **options})


def inherited(app, **options):
    parent = of_class(app, **options)
    return app.register_task(type("Child", (type(parent),), {"name": "unit.Child", **options})())


def inherited_with_own_run(app, **options):
    parent = type(of_class(app, **options))

    class Child(parent):
        name = "unit.Child"

        def run(self, x):
            return super().run(x)

    return app.register_task(Child())


def own_before_start(app, **options):
    return of_class(app, body={"before_start": lambda self, task_id, args, kwargs: None}, **options)


def own_call(app, **options):
    return of_class(app, body={"__call__": lambda self, *args, **kwargs: self.run(*args, **kwargs)}, **options)


def own_hooks_from_base(app, **options):
    class Base(UniqueTask):
        abstract = True

        def before_start(self, task_id, args, kwargs):
            pass

        def __call__(self, *args, **kwargs):
            return self.run(*args, **kwargs)

    @app.task(base=Base, lock="until_executed", shared=False, **options)
    def body(x):
        ran.append(x)

    return body


class Project(Task):
    """A project's own base, as for Flask's context."""

    abstract = True
    calls = 0

    def __call__(self, *args, **kwargs):
        type(self).calls += 1
        return super().__call__(*args, **kwargs)

    def before_start(self, task_id, args, kwargs):
        super().before_start(task_id, args, kwargs)

    def apply_async(self, *args, **kwargs):
        return super().apply_async(*args, **kwargs)


def mixed(*bases):
    def make(app, **options):
        @app.task(base=type("Mixed", bases, {"abstract": True}), lock="until_executed", shared=False, **options)
        def body(x):
            ran.append(x)

        return body

    return make


KINDS = {
    "function": plain,
    "bound function": bound,
    "function with autoretry": autoretried,
    "function with pydantic": typed,
    "class": class_based,
    "class with autoretry": class_based_autoretried,
    "class that inherits a bound one": inherited,
    "class that calls the run of a bound one": inherited_with_own_run,
    "own before_start, no super": own_before_start,
    "own __call__, no super": own_call,
    "own hooks from a base, no super": own_hooks_from_base,
    "before a project's base": mixed(UniqueTask, Project),
    "behind a project's base": mixed(Project, UniqueTask),
    "before Django's": mixed(UniqueTask, DjangoTask),
    "behind Django's": mixed(DjangoTask, UniqueTask),
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())


@every_kind
def test_a_run_that_is_let_in_runs_its_body_once(app, store, make):
    assert deliver(make(app), 7) == states.SUCCESS
    assert ran == [7]
    assert store.names == ["start", "finish"]


@every_kind
def test_a_run_that_is_done_does_not_reach_its_body(app, store, make):
    store.started = DONE
    assert deliver(make(app), 7) == states.IGNORED
    assert ran == []
    assert store.names == ["start"]


@every_kind
def test_a_refused_run_fails_with_lock_conflict_instead_of_its_body(app, store, make):
    store.started = CONFLICT
    task = make(app, on_conflict="raise")
    assert deliver(task, 7) == states.FAILURE
    assert ran == []
    result = task.AsyncResult("some id").result
    assert isinstance(result, LockConflict)
    assert (result.task, result.holder) == (task.name, "holder")


@every_kind
def test_a_refused_run_that_is_logged_does_not_reach_its_body(app, store, make):
    store.started = CONFLICT
    task = make(app)
    assert deliver(task, 7) == states.IGNORED
    assert ran == []
    result = task.AsyncResult("some id")
    assert result.state == states.REVOKED
    assert isinstance(result.result, DuplicateDropped)


@every_kind
def test_the_gate_tells_of_each_start_once(app, store, make):
    told = []

    def receiver(**what):
        told.append(what["phase"])

    ours.lock_acquired.connect(receiver)
    try:
        deliver(make(app), 7)
    finally:
        ours.lock_acquired.disconnect(receiver)
    assert told == ["running"]


def test_the_gate_of_a_class_and_of_its_bound_parent_act_once(app, store):
    """Both ``before_start`` are behind a gate, and the child's calls the parent's."""
    parent = type(of_class(app))

    class Child(parent):
        name = "unit.Child"

        def before_start(self, task_id, args, kwargs):
            super().before_start(task_id, args, kwargs)

    told = []

    def receiver(**what):
        told.append(what["phase"])

    ours.lock_acquired.connect(receiver)
    try:
        assert deliver(app.register_task(Child()), 7) == states.SUCCESS
    finally:
        ours.lock_acquired.disconnect(receiver)
    assert ran == [7]
    assert told == ["running"]


@pytest.mark.parametrize("make", [autoretried, class_based_autoretried], ids=["function", "class"])
def test_autoretry_has_a_say_in_a_conflict(app, store, make):
    store.started = CONFLICT
    task = make(app, on_conflict="raise", dont_autoretry_for=())
    assert deliver(task, 7) == states.RETRY
    assert ran == []


def test_a_projects_own_hooks_run_behind_the_gate(app, store):
    seen = []
    task = of_class(app, body={"before_start": lambda self, task_id, args, kwargs: seen.append(task_id)})
    deliver(task, 7)
    assert seen == ["some id"]
    store.started = DONE
    deliver(task, 7)
    assert seen == ["some id"], "a delivery that ends at the gate does not start"


@pytest.mark.parametrize("bases", [(UniqueTask, Project), (Project, UniqueTask)], ids=["before", "behind"])
def test_a_projects_own_base_keeps_its_call(app, store, bases):
    task = mixed(*bases)(app)
    deliver(task, 7)
    assert task.calls == 1


@pytest.mark.parametrize("bases", [(UniqueTask, DjangoTask), (DjangoTask, UniqueTask)], ids=["before", "behind"])
def test_djangos_task_keeps_its_methods(app, bases):
    task = mixed(*bases)(app)
    assert callable(task.delay_on_commit)
    assert task.once_more.lock.name == "until_executed"


def test_binding_again_and_again_puts_one_gate(app):
    task = plain(app)
    cls = task.__class__
    before_start, run = cls.before_start, cls.run
    for _ in range(3):
        task.bind(app)
    assert (cls.before_start, cls.run) == (before_start, run)


def test_a_task_without_a_lock_asks_the_store_nothing(app, store):
    task = of_class(app, lock=None)
    task.delay(7)
    assert deliver(task, 7) == states.SUCCESS
    assert ran == [7]
    assert store.acts == []


# publishing


@every_kind
def test_a_publish_of_every_kind_asks_for_its_lock_and_carries_its_ticket(app, store, make):
    task, sent = make(app), []

    def receiver(headers=None, **_):
        sent.append(headers["once_more"])

    signals.before_task_publish.connect(receiver, sender=task.name)
    result = task.delay(7)
    signals.before_task_publish.disconnect(receiver, sender=task.name)
    (ticket,) = store.tickets
    assert sent == [ticket.to_header()]
    assert (ticket.task, ticket.task_id, ticket.queue) == (task.name, result.id, "celery")
    assert (type(result), result.duplicate) == (UniqueResult, False)


@pytest.mark.parametrize("make", [plain, class_based, mixed(Project, UniqueTask)], ids=["function", "class", "behind a base"])
def test_a_refused_publish_is_answered_with_the_holders_result(app, store, make):
    store.answer = Answer(verdict="refused", holder=HOLDER)
    result = make(app).delay(7)
    assert (type(result), result.duplicate, result.id) == (UniqueResult, True, "holder")


def test_a_refused_publish_raises_where_the_call_says_so(app, store):
    store.answer = Answer(verdict="refused", holder=HOLDER)
    with pytest.raises(LockConflict) as caught:
        plain(app).apply_async((7,), on_conflict="raise")
    assert (caught.value.holder, caught.value.digest) == ("holder", store.tickets[0].digest)


def test_a_call_without_its_lock_asks_nothing_and_its_run_neither(app, store):
    task, sent = plain(app), []

    def receiver(headers=None, **_):
        sent.append(headers["once_more"])

    signals.before_task_publish.connect(receiver, sender=task.name)
    task.apply_async((7,), lock=None)
    signals.before_task_publish.disconnect(receiver, sender=task.name)
    deliver(task, 7, once_more=sent[0])
    assert ran == [7]
    assert store.acts == []


def test_a_call_with_wrong_arguments_is_celerys_type_error_and_leaves_no_lock(app, store):
    with pytest.raises(TypeError, match="positional"):
        plain(app).delay(1, 2)
    assert store.acts == []


# eager mode, and a direct call


def test_a_direct_call_asks_nothing(app, store):
    plain(app)(7)
    assert ran == [7]
    assert store.acts == []


@every_kind
def test_apply_asks_nothing(app, store, make):
    assert type(make(app, on_conflict="raise").apply((7,))) is EagerResult
    assert ran == [7]
    assert store.acts == []


def test_always_eager_asks_nothing(app, store):
    app.conf.task_always_eager = True
    task = plain(app)
    assert type(task.delay(7)) is EagerResult
    assert type(task.delay(7)) is EagerResult
    assert ran == [7, 7]
    assert store.acts == []


def test_the_current_lock_is_null_in_eager_mode(app, store):
    seen = []

    @app.task(base=UniqueTask, lock="until_executed", shared=False)
    def looks():
        current_lock.check()
        seen.append((bool(current_lock), current_lock.digest, current_lock.fencing_token, current_lock.remaining))

    looks.apply()
    looks()
    assert seen == [(False, None, None, 0.0)] * 2


# what binding sets up


def test_binding_adds_the_keeper_and_the_reap_task_once(app):
    plain(app)
    of_class(app)
    assert list(app.steps["worker"]) == [KEEPER]
    assert app.tasks["celery_once_more.reap"].expires == 60
    assert app.tasks["celery_once_more.reap"].__class__.__mro__[1] is Task


def test_the_keepers_name_is_right():
    from celery.utils.imports import symbol_by_name

    assert symbol_by_name(KEEPER) is KeeperStep


def test_binding_in_one_app_adds_nothing_to_another(app):
    def another():
        """What a new app has; that is more than nothing where another test module has a ``shared_task``."""
        other = Celery("other", broker="memory://", set_as_current=False)
        other.finalize()
        return set(other.steps["worker"]), set(other.tasks)

    before = another()
    plain(app)
    assert another() == before


def test_receivers_are_connected_once_however_many_tasks_are_bound(app):
    def receivers():
        names = ("before_task_publish", "task_prerun", "task_postrun")
        return [sum("celery_once_more" in str(key) for key, _ in getattr(signals, name).receivers) for name in names]

    plain(app)
    of_class(app)
    assert receivers() == [1, 1, 1]


def test_a_task_can_be_used_while_another_thread_is_binding_it(app):
    """Celery says from the beginning on that it is bound."""
    begun, go_on = threading.Event(), threading.Event()

    class Slow(UniqueTask):
        @classmethod
        def on_bound(cls, app):
            begun.set()
            go_on.wait(60)
            super().on_bound(app)

    task = app.task(base=Slow, lock="until_executed", shared=False, lazy=True)(does_nothing)._get_current_object
    binder = threading.Thread(target=task)
    binder.start()
    assert begun.wait(60)
    made = Slow.__subclasses__()[0]
    try:
        assert made.__bound__
        assert made()._bound() is app
        assert made.once_more.lock.name == "until_executed"
    finally:
        go_on.set()
        binder.join(60)


def test_a_task_with_a_wrong_option_says_so_each_time_that_it_is_used(app):
    task = type("Wrong", (UniqueTask,), {"name": "unit.Wrong", "lock": "until_exectued", "run": lambda self: None})
    task._app = app
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="until_executed"):
            task().delay()


def test_track_started_is_ours_to_keep(app, store):
    """Celery would store STARTED before the gate, over a result that is there already."""
    seen = []

    @app.task(base=UniqueTask, bind=True, lock="until_executed", track_started=True, shared=False)
    def body(self):
        seen.append(self.AsyncResult(self.request.id).state)

    deliver(body, task_id="runs")
    assert seen == [states.STARTED]
    body.backend.store_result("is done", ValueError("its result"), states.FAILURE)
    store.started = DONE
    deliver(body, task_id="is done")
    assert body.AsyncResult("is done").state == states.FAILURE


# results


def test_a_result_is_celerys_own_kind(app):
    assert issubclass(UniqueResult, AsyncResult)
    assert plain(app).AsyncResult("some id").duplicate is False


def test_a_result_says_whether_it_is_a_duplicates_after_a_copy_and_a_pickle(app):
    app.set_current()
    result = plain(app).AsyncResult("some id", duplicate=True)
    for again in (copy.copy(result), pickle.loads(pickle.dumps(result))):
        assert (type(again), again.duplicate, again.id) == (UniqueResult, True, "some id")
