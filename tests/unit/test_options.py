"""What a task says about its lock: every wrong word is refused when the task is bound, with the right one beside it."""

import dataclasses
import inspect
import json
import re
from datetime import timedelta

import pytest
from celery import Celery, Task, shared_task

from celery_once_more import ConfigurationError, UniqueTask
from celery_once_more.lock_types import LOCK_TYPES
from celery_once_more.options import DEFAULTS, IN_WORKER


def settle(event_id, payload=None):
    return event_id


LOCKS = ", ".join(map(repr, LOCK_TYPES))

WRONG = [
    ({"lock": "until_exectued"},
     f"lock='until_exectued' is no lock; did you mean 'until_executed'? There is: {LOCKS}, or None"),
    ({"lock": "mutex"}, f"lock='mutex' is no lock; There is: {LOCKS}, or None"),
    ({"lock": ""}, f"lock='' is no lock; There is: {LOCKS}, or None"),
    ({"lock": "while_excuting"}, "lock='while_excuting' is no lock; did you mean 'while_executing'?"),
    ({"lock": True}, "lock=True is no lock;"),
    ({"lock": False}, "lock=False is no lock;"),
    ({"lock": 5}, "lock=5 is no lock;"),
    ({"lock": ["until_executed"]}, "lock=['until_executed'] is no lock;"),
    ({"lock": LOCK_TYPES["until_executed"]}, "lock=LockType(name='until_executed', "),
    ({"on_conflict": "rais"}, "on_conflict='rais' is no strategy; did you mean 'raise'? There is: 'log', 'raise', 'reschedule'"),
    ({"on_conflict": "drop"}, "on_conflict='drop' is no strategy; There is: 'log', 'raise', 'reschedule'"),
    ({"on_conflict": "reject"}, "on_conflict='reject' is no strategy;"),
    ({"on_conflict": "replace"}, "on_conflict='replace' is no strategy;"),
    ({"on_conflict": ""}, "on_conflict='' is no strategy;"),
    ({"on_conflict": 5}, "on_conflict=5 is no strategy;"),
    ({"on_conflict": ["log"]}, "on_conflict=['log'] is no strategy;"),
    ({"on_conflict": {"client": "logg"}}, "on_conflict='logg' is no strategy; did you mean 'log'?"),
    ({"on_conflict": {"server": None}}, "on_conflict=None is no strategy;"),
    ({"on_conflict": {"clinet": "log"}},
     "on_conflict has no side 'clinet'; did you mean 'client'? There is: 'client', 'server'"),
    ({"on_conflict": {"worker": "log"}}, "on_conflict has no side 'worker'; "),
    ({"on_conflict": {1: "log"}}, "on_conflict has no side 1; "),
    ({"on_outage": "procede"}, "on_outage='procede' is no policy; did you mean 'proceed'? There is: 'raise', 'proceed'"),
    ({"on_outage": "wait"}, "on_outage='wait' is no policy; There is: 'raise', 'proceed'"),
    ({"on_outage": True}, "on_outage=True is no policy; "),
    ({"on_outage": ["raise"]}, "on_outage=['raise'] is no policy; "),
    ({"lock_args": ["event"]},
     "lock_args names 'event', which the task does not take; did you mean 'event_id'? There is: 'event_id', 'payload'"),
    ({"lock_args": ["x"]}, "lock_args names 'x', which the task does not take; There is: 'event_id', 'payload'"),
    ({"lock_args": ["event_id", "self"]}, "lock_args names 'self', which the task does not take; "),
    ({"lock_args": "event_id"},
     "lock_args must be a list of parameter names or a callable, not 'event_id'; did you mean ['event_id']?"),
    ({"lock_args": 5}, "lock_args must be a list of parameter names or a callable, not 5"),
    ({"lock_args": [0]}, "lock_args must be a list of parameter names or a callable, not [0]"),
    ({"lock_args": {"event_id"}}, "lock_args must be a list of parameter names or a callable, not {'event_id'}"),
    ({"lock_args": {"event_id": 1}}, "lock_args must be a list of parameter names or a callable, not {'event_id': 1}"),
    ({"lok": "until_executed"}, "unknown option lok; did you mean lock?"),
    ({"locks": "until_executed"}, "unknown option locks; did you mean lock?"),
    ({"lock_arg": ["event_id"]}, "unknown option lock_arg; did you mean lock_args?"),
    ({"lock_arg": settle}, "unknown option lock_arg; did you mean lock_args?"),
    ({"lockargs": ["event_id"]}, "unknown option lockargs; did you mean lock_args?"),
    ({"on_conflicts": "log"}, "unknown option on_conflicts; did you mean on_conflict?"),
    ({"onconflict": "log"}, "unknown option onconflict; did you mean on_conflict?"),
    ({"on_outrage": "raise"}, "unknown option on_outrage; did you mean on_outage?"),
    ({"lock": "until_expired"}, "lock='until_expired' needs lock_ttl, the seconds (or timedelta) of its period"),
    ({"lock": "until_expired", "lock_ttl": 0}, "lock_ttl must be a positive number of seconds or a timedelta, not 0"),
    ({"lock": "until_expired", "lock_ttl": -5}, "lock_ttl must be a positive number of seconds or a timedelta, not -5"),
    ({"lock": "until_expired", "lock_ttl": True}, "lock_ttl must be a positive number of seconds or a timedelta, not True"),
    ({"lock": "until_expired", "lock_ttl": "5"}, "lock_ttl must be a positive number of seconds or a timedelta, not '5'"),
    ({"lock_ttl": 5}, "lock_ttl makes no sense with lock='until_executed'; it is for until_expired"),
    ({"lock": "while_executing", "lock_ttl": 5}, "lock_ttl makes no sense with lock='while_executing'; it is for until_expired"),
    ({"lock_limit": 2}, "lock_limit makes no sense with lock='until_executed'; it is for while_executing"),
    ({"lock": "until_and_while_executing", "lock_limit": 2}, "lock_limit makes no sense with lock='until_and_while_executing'"),
    ({"lock": "while_executing", "lock_limit": 0}, "lock_limit must be a whole number of at least 1, not 0"),
    ({"lock": "while_executing", "lock_limit": 1.5}, "lock_limit must be a whole number of at least 1, not 1.5"),
    ({"lock": "while_executing", "lock_limit": True}, "lock_limit must be a whole number of at least 1, not True"),
    ({"lock": "while_executing", "lock_timeout": 1},
     "lock_timeout makes no sense with lock='while_executing'; it is for a lock that is taken at the publish"),
    ({"lock_timeout": -1}, "lock_timeout must be a positive number of seconds or a timedelta, not -1"),
    ({"lock_timeout": "1"}, "lock_timeout must be a positive number of seconds or a timedelta, not '1'"),
    ({"lock_lease": 0}, "lock_lease must be a positive number of seconds or a timedelta, not 0"),
    ({"lock_queue_lease": -1}, "lock_queue_lease must be a positive number of seconds or a timedelta, not -1"),
    ({"reschedule_countdown": 0}, "reschedule_countdown must be a positive number of seconds or a timedelta, not 0"),
    ({"lock_scope": 5}, "lock_scope must be a name that is not empty, not 5"),
    ({"lock_scope": ""}, "lock_scope must be a name that is not empty, not ''"),
    ({"lock_scope": settle}, "lock_scope must be a name that is not empty, not <function"),
    ({"unique_across_queues": 1}, "unique_across_queues must be True or False, not 1"),
    ({"strict_args": "yes"}, "strict_args must be True or False, not 'yes'"),
    ({"lock": "while_executing", "on_conflict": {"client": "log"}},
     "on_conflict has no side 'client' with this lock, whose publish asks nothing; give it for 'server'"),
    ({"lock_scop": "x"}, "unknown option lock_scop; did you mean lock_scope?"),
    ({"lock_tll": 5}, "unknown option lock_tll; did you mean lock_ttl?"),
    ({"unique_accross_queues": True}, "unknown option unique_accross_queues; did you mean unique_across_queues?"),
    ({"reschedule_count_down": 5}, "unknown option reschedule_count_down; did you mean reschedule_countdown?"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "sentence"), WRONG, ids=[re.sub(r"<function (\w+).*?>", r"\1", str(row[0])) for row in WRONG])
def test_a_wrong_option_is_refused_when_the_task_is_bound(task, wrong, sentence):
    with pytest.raises(ConfigurationError) as caught:
        task(settle, **wrong)
    assert str(caught.value).startswith(f"task 'unit.settle': {sentence}")


@pytest.mark.parametrize(("wrong", "sentence"), WRONG, ids=[re.sub(r"<function (\w+).*?>", r"\1", str(row[0])) for row in WRONG])
def test_a_wrong_option_of_a_class_based_task_is_refused_as_well(app, wrong, sentence):
    if callable(wrong.get("lock_arg")):
        wrong = {"lock_arg": ["event_id"]}  # a function in a class is a method of it
    attributes = {"name": "unit.Settle", "lock": "until_executed", "run": lambda self, event_id, payload=None: None, **wrong}
    with pytest.raises(ConfigurationError) as caught:
        app.register_task(type("Settle", (UniqueTask,), attributes)())
    assert str(caught.value).startswith(f"task 'unit.Settle': {sentence}")


@pytest.mark.parametrize("name", ["lok", "lock_ttl"])
@pytest.mark.parametrize("kind", ["subclass", "mix-in", "plain base"])
def test_a_wrong_option_that_is_inherited_is_refused_as_well(task, name, kind):
    if kind == "subclass":
        base = type("Base", (UniqueTask,), {"abstract": True, name: 5})
    else:
        base = type("Base", (type("Mixin", (Task,) if kind == "plain base" else (), {name: 5}), UniqueTask), {"abstract": True})
    with pytest.raises(ConfigurationError, match=name):
        task(settle, base=base)


def test_a_tasks_own_names_that_look_like_options_are_its_own(app):
    class Settle(UniqueTask):
        name = "unit.Settle"
        lock = "until_executed"
        clock = 1
        block = 2
        event_lock = 3

        def run(self, event_id):
            pass

        def unlock(self):
            pass

        def locked(self):
            pass

        @classmethod
        def locks(cls):
            pass

        @staticmethod
        def locker():
            pass

        @property
        def on_conflicts(self):
            return None

    assert app.register_task(Settle()).once_more.lock == LOCK_TYPES["until_executed"]


def test_celerys_own_options_and_a_projects_further_ones_are_left_alone(task):
    settles = task(settle, acks_late=True, rate_limit="5/m", project_tag="x", max_retries=None)
    assert settles.acks_late
    assert settles.project_tag == "x"


def test_the_error_is_one_of_celerys_kind_too(task):
    from celery.exceptions import ImproperlyConfigured

    with pytest.raises(ImproperlyConfigured):
        task(settle, lock="mutex")


def test_a_wrong_option_shows_when_a_lazy_task_is_first_used(app):
    settles = app.task(base=UniqueTask, lock="mutex", name="unit.lazy", shared=False)(settle)
    with pytest.raises(ConfigurationError, match=r"unit\.lazy"):
        settles.delay(1)


def test_a_wrong_option_shows_when_the_app_is_finalized(app):
    app.task(base=UniqueTask, lock="mutex", name="unit.lazy", shared=False)(settle)
    with pytest.raises(ConfigurationError, match=r"unit\.lazy"):
        app.finalize()


# the right words


def test_defaults_are_no_lock_and_log(task):
    options = task(settle, lock=None).once_more
    assert (options.lock, options.lock_args, options.scope, options.across_queues) == (None, None, None, False)
    assert (options.ttl, options.lease, options.queue_lease, options.timeout, options.countdown) == (0.0, None, None, 0.0, 5.0)
    assert (options.client, options.server, options.on_outage, options.strict) == ("log", "log", None, False)


def test_options_are_frozen(task):
    options = task(settle).once_more
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.client = "raise"


def test_lock_args_are_a_tuple_whatever_they_were(task):
    names = ["event_id"]
    settles = task(settle, lock_args=names)
    names.append("payload")
    assert settles.once_more.lock_args == ("event_id",)


@pytest.mark.parametrize(
    ("on_conflict", "client", "server"),
    [
        (None, "log", "log"),
        ("log", "log", "log"),
        ("raise", "raise", "raise"),
        ({}, "log", "log"),
        ("reschedule", "reschedule", "reschedule"),
        ({"client": "raise"}, "raise", "log"),
        ({"server": "raise"}, "log", "raise"),
        ({"client": "raise", "server": "log"}, "raise", "log"),
    ],
    ids=str,
)
def test_a_strategy_holds_for_both_sides_unless_one_is_named(task, on_conflict, client, server):
    options = task(settle, on_conflict=on_conflict).once_more
    assert (options.client, options.server) == (client, server)


@pytest.mark.parametrize(
    ("lock", "on_conflict", "sides"),
    [
        ("until_executing", None, ("log", "log")),
        ("until_expired", None, ("log", "log")),
        ("while_executing", None, ("log", "reschedule")),
        ("while_executing", "raise", ("log", "raise")),
        ("until_and_while_executing", None, ("log", "reschedule")),
        ("until_and_while_executing", "log", ("log", "log")),
        ("until_and_while_executing", {"client": "raise"}, ("raise", "reschedule")),
    ],
    ids=str,
)
def test_a_lock_whose_start_may_find_another_run_in_its_way_reschedules_there_unless_the_task_says(
    task, lock, on_conflict, sides
):
    more = {"lock_ttl": 5} if lock == "until_expired" else {}
    options = task(settle, lock=lock, on_conflict=on_conflict, **more).once_more
    assert (options.client, options.server) == sides


@pytest.mark.parametrize("policy", [None, "raise", "proceed"])
def test_an_outage_policy_is_taken(task, policy):
    assert task(settle, on_outage=policy).once_more.on_outage == policy


def test_a_name_among_keyword_arguments_cannot_be_checked_and_is_taken(task):
    def anything(known, **kwargs):
        pass

    assert task(anything, lock_args=["known", "unknown"]).once_more.lock_args == ("known", "unknown")


@pytest.mark.parametrize(
    "function",
    [
        lambda name, /: None,
        lambda *, name: None,
        lambda *name: None,
        lambda other, name=1: None,
    ],
    ids=lambda function: str(inspect.signature(function)),
)
def test_any_kind_of_parameter_can_be_named(task, function):
    function.__name__ = "kinds"
    assert task(function, lock_args=["name"]).once_more.lock_args == ("name",)


def test_a_bound_task_does_not_take_itself(task):
    def bound(self, x):
        pass

    with pytest.raises(ConfigurationError, match="lock_args names 'self', which the task does not take"):
        task(bound, bind=True, lock_args=["self"])


def test_every_option_is_documented_on_the_class():
    source = inspect.getsource(UniqueTask)
    for name, default in DEFAULTS.items():
        assert f"\n    {name}: " in source
        assert getattr(UniqueTask, name) == default


# where options come from


def test_a_class_inherits_the_options_of_another(task):
    base = type("Base", (UniqueTask,), {"abstract": True, "lock": "until_executed", "on_conflict": "raise"})
    options = task(settle, base=base, lock=base.lock).once_more
    assert (options.lock.name, options.client) == ("until_executed", "raise")


def test_a_class_inherits_the_options_of_one_that_is_bound_itself(app):
    class Settle(UniqueTask):
        name = "unit.Settle"
        lock = "until_executed"
        lock_args = ("event_id",)

        def run(self, event_id):
            pass

    class SettleAgain(Settle):
        name = "unit.SettleAgain"
        on_conflict = "raise"

        def run(self, event_id, more=None):
            pass

    first, second = app.register_task(Settle()), app.register_task(SettleAgain())
    assert (first.once_more.client, second.once_more.client) == ("log", "raise")
    assert second.once_more.lock_args == ("event_id",)
    assert "more" in second.once_more_signature().parameters
    assert "more" not in first.once_more_signature().parameters


def test_task_annotations_change_options_before_they_are_checked(app, task):
    app.conf.task_annotations = {"unit.settle": {"lock": "until_executed", "lock_args": ["event_id"]}}
    options = task(settle, lock=None).once_more
    assert (options.lock.name, options.lock_args) == ("until_executed", ("event_id",))


def test_task_annotations_can_switch_a_lock_off(app, task):
    app.conf.task_annotations = {"unit.settle": {"lock": None}}
    assert task(settle).once_more.lock is None


@pytest.mark.parametrize("annotation", [{"lock": "mutex"}, {"lock_ttl": 5}, {"lok": "until_executed"}], ids=str)
def test_task_annotations_are_checked_like_the_options_they_change(app, task, annotation):
    app.conf.task_annotations = {"unit.settle": annotation}
    with pytest.raises(ConfigurationError, match=r"task 'unit\.settle'"):
        task(settle)


def test_an_app_of_unique_tasks_leaves_celerys_own_tasks_without_a_lock():
    app = Celery("unit", broker="memory://", task_cls=UniqueTask, set_as_current=False)
    app.finalize()
    builtin = [task for name, task in app.tasks.items() if name.startswith("celery.")]
    assert {task.once_more.lock for task in builtin} == {None}
    assert "celery.chord_unlock" in app.tasks


def test_an_app_of_unique_tasks_takes_options_without_a_base():
    app = Celery("unit", broker="memory://", task_cls=UniqueTask, set_as_current=False)
    settles = app.task(lock="until_executed", lazy=False, shared=False)(settle)
    assert settles.once_more.lock.name == "until_executed"


def test_an_app_of_unique_tasks_can_have_a_plain_one():
    app = Celery("unit", broker="memory://", task_cls=UniqueTask, set_as_current=False)
    assert not hasattr(app.task(base=Task, lazy=False, shared=False)(settle), "once_more")


def test_a_shared_task_is_checked_by_each_app():
    @shared_task(base=UniqueTask, lock="until_executed", name="unit.shared_checked")
    def shared(x):
        pass

    apps = [Celery(f"unit{n}", broker="memory://", set_as_current=False) for n in range(2)]
    apps[1].conf.task_annotations = {"unit.shared_checked": {"on_conflict": "raise"}}
    assert [app.tasks["unit.shared_checked"].once_more.client for app in apps] == ["log", "raise"]


# options of one call


@pytest.fixture
def settles(task):
    return task(settle)


@pytest.fixture
def options(settles):
    return settles.once_more


def test_a_call_without_options_has_those_of_the_task(settles, options):
    message = {"countdown": 5}
    assert options.for_call(settles, message) == (options, message)


def test_options_of_a_call_go_over_those_of_the_task_and_are_taken_out_of_the_message(settles, options):
    changed, message = options.for_call(settles, {"lock": None, "on_conflict": "raise", "on_outage": "proceed", "queue": "q"})
    assert (changed.lock, changed.client, changed.server, changed.on_outage) == (None, "raise", "raise", "proceed")
    assert message == {"queue": "q"}
    assert options.lock is not None, "the task's own are as they were"


def test_one_side_of_a_call_leaves_the_other_with_its_default(task):
    """What a call says stands for the whole option, as everywhere."""
    settles = task(settle, on_conflict={"server": "raise"})
    changed, _ = settles.once_more.for_call(settles, {"on_conflict": {"client": "raise"}})
    assert (changed.client, changed.server) == ("raise", "log")


def test_a_call_can_take_a_lock_that_the_task_has_not(task):
    settles = task(settle, lock=None)
    changed, _ = settles.once_more.for_call(settles, {"lock": "until_executed"})
    assert changed.lock == LOCK_TYPES["until_executed"]


@pytest.mark.parametrize("lock", [None, "until_executed", "while_executing"])
def test_a_call_with_another_lock_leaves_out_what_the_task_says_for_its_own(task, lock):
    settles = task(settle, lock="until_expired", lock_ttl=60, lock_timeout=1, on_conflict={"client": "raise"})
    changed, _ = settles.once_more.for_call(settles, {"lock": lock})
    assert (changed.lock and changed.lock.name, changed.ttl) == (lock, 0.0)
    assert changed.timeout == (1 if lock == "until_executed" else 0)


def test_what_a_worker_must_know_of_a_call_travels_with_it(task):
    settles = task(settle, lock="while_executing")
    said = {"lock_lease": timedelta(seconds=7), "reschedule_countdown": 2, "on_conflict": "raise", "lock_scope": "x"}
    changed, _ = settles.once_more.for_call(settles, said)
    assert changed.said == {"lock_lease": 7.0, "reschedule_countdown": 2, "on_conflict": "raise"}
    told = settles.once_more.for_message(settles, changed.lock, json.loads(json.dumps(changed.said)))
    assert (told.lease, told.countdown, told.server) == (7.0, 2.0, "raise")


def test_a_message_with_another_lock_than_the_task_has_by_now_keeps_the_strategy_of_its_own(task):
    settles = task(settle)
    assert settles.once_more.for_message(settles, LOCK_TYPES["while_executing"], {}).server == "reschedule"


@pytest.mark.parametrize("said", [{"on_conflict": "no such"}, {"lock_lease": "x"}, {"reschedule_countdown": -1}], ids=str)
def test_a_message_that_says_what_nobody_understands_is_refused(settles, options, said):
    with pytest.raises(ConfigurationError, match=r"a ticket of task 'unit\.settle'"):
        options.for_message(settles, options.lock, said)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"lock": "mutex"}, "lock='mutex' is no lock; "),
        ({"on_conflict": "drop"}, "on_conflict='drop' is no strategy; "),
        ({"on_conflict": {"worker": "log"}}, "on_conflict has no side 'worker'; "),
        ({"on_outage": "wait"}, "on_outage='wait' is no policy; "),
        ({"lock_args": ["x"]}, "lock_args names 'x', which the task does not take; "),
        ({"lock_ttl": 5}, "lock_ttl makes no sense with lock='until_executed'; it is for until_expired"),
        ({"lock_limit": 2}, "lock_limit makes no sense with lock='until_executed'; it is for while_executing"),
        ({"lock": None, "lock_ttl": 5}, "lock_ttl makes no sense without a lock; it is for until_expired"),
        ({"lock": None, "lock_timeout": 5}, "lock_timeout makes no sense without a lock; "),
        ({"lock": "until_expired"}, "lock='until_expired' needs lock_ttl"),
        ({"lock_lease": -1}, "lock_lease must be a positive number of seconds or a timedelta, not -1"),
        ({"lock_scope": 5}, "lock_scope must be a name that is not empty, not 5"),
        ({"on_conflct": "raise"}, "unknown option on_conflct; did you mean on_conflict?"),
        ({"lok": None}, "unknown option lok; did you mean lock?"),
        ({"on_outrage": "raise"}, "unknown option on_outrage; did you mean on_outage?"),
    ],
    ids=lambda x: str(x)[:60],
)
def test_a_wrong_option_of_a_call_is_refused_before_anything_is_published(task, store, wrong, sentence):
    settles = task(settle)
    with pytest.raises(ConfigurationError) as caught:
        settles.apply_async(("a",), **wrong)
    assert str(caught.value).startswith(f"a call of task 'unit.settle': {sentence}")
    assert store.acts == []


def test_celerys_options_of_a_call_are_no_misspelt_options_of_ours(settles, options):
    more = "priority queue exchange routing_key serializer compression headers retry retry_policy delivery_mode expiration"
    celerys = [*inspect.signature(Celery.send_task).parameters, *more.split()]
    message = dict.fromkeys(celerys, 1)
    assert options.for_call(settles, message) == (options, message)


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_signature_carries_options_to_its_call(settles, store, name):
    with pytest.raises(ConfigurationError, match=name):
        settles.s("a").set(**{name: object() if name != "lock_args" else 5}).apply_async()


def test_options_for_the_worker_are_options():
    assert set(IN_WORKER) < set(DEFAULTS)
