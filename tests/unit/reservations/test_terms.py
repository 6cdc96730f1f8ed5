"""What a caller says about a reservation is checked before anything is written; a task's hard time limit counts for its lease."""

import inspect
from datetime import timedelta

import pytest
from celery import Celery
from support.ids import plainly

from celery_once_more import ConfigurationError
from celery_once_more.reservations import ASSUME_DONE, REFUSE, REPEAT, Reservations, verify
from celery_once_more.reservations import terms as terms_module
from celery_once_more.reservations.in_task import hard_limit_s


def check(**how):
    return terms_module.check(**{"on_unknown": REPEAT, "lease": 60, "limit_s": None, **how})


def test_a_policy_has_no_default():
    for name in ("run", "reserve"):
        assert inspect.signature(getattr(Reservations, name)).parameters["on_unknown"].default is inspect.Parameter.empty


@pytest.mark.parametrize("value", [None, "REPEAT", "verify", verify, lambda r: None, True], ids=plainly)
def test_what_is_no_policy_is_refused(value):
    with pytest.raises(ConfigurationError, match="on_unknown must be REPEAT, REFUSE, ASSUME_DONE or verify"):
        check(on_unknown=value)


def test_verify_takes_a_function():
    with pytest.raises(TypeError, match="verify takes the function"):
        verify("ask")


def test_repeat_has_bounds_that_are_there_unless_others_are_said():
    assert (check().repeat_within_us, check().max_takeovers) == (24 * 3600 * 1_000_000, 5)
    assert check(repeat_within=timedelta(hours=1)).repeat_within_us == 3600 * 1_000_000
    assert check(repeat_within=None).repeat_within_us is None


@pytest.mark.parametrize("policy", [REFUSE, ASSUME_DONE, verify(lambda r: None)], ids=plainly)
@pytest.mark.parametrize("how", [{"repeat_within": None}, {"repeat_within": 5}, {"max_takeovers": 5}], ids=plainly)
def test_other_policies_take_no_bounds(policy, how):
    with pytest.raises(ConfigurationError, match="belongs to on_unknown=REPEAT"):
        check(on_unknown=policy, **how)


@pytest.mark.parametrize(
    "how",
    [{"lease": 0}, {"lease": "60"}, {"lease": True}, {"lease": float("inf")}, {"lease": float("nan")}, {"lease": 10**9},
     {"repeat_within": 0}, {"repeat_within": "a day"}, {"max_takeovers": 1.5}, {"max_takeovers": True}, {"max_takeovers": None},
     {"not_done": ValueError()}, {"not_done": [int]}, {"final": "ValueError"}, {"final": None}],
    ids=plainly,
)  # fmt: skip
def test_a_wrong_value_is_named(how):
    with pytest.raises(ConfigurationError, match=next(iter(how))):
        check(**how)


def test_one_type_of_error_is_as_good_as_a_tuple():
    assert check(not_done=ValueError, final=[KeyError, OSError]).not_done == (ValueError,)
    assert check(not_done=ValueError, final=[KeyError, OSError]).final == (KeyError, OSError)


# The lease


def test_without_a_time_limit_a_lease_must_be_given():
    with pytest.raises(ConfigurationError, match="lease must be given"):
        check(lease=None)


def test_with_a_time_limit_the_lease_is_that_and_thirty_seconds():
    assert check(lease=None, limit_s=300).lease_us == 330 * 1_000_000


@pytest.mark.parametrize("lease", [1, 300, 329, timedelta(seconds=329)], ids=plainly)
def test_a_lease_shorter_than_the_task_may_run_is_refused(lease):
    with pytest.raises(ConfigurationError, match=r"shorter than the 330 s.*hard time limit of 300 s"):
        check(lease=lease, limit_s=300)


def test_a_longer_one_is_taken():
    assert check(lease=330, limit_s=300).lease_us == 330 * 1_000_000


# A task's hard time limit


def limit():
    return hard_limit_s()


@pytest.fixture
def told(app):
    """``told(conf, **options)``: the limit that a task sees of itself, as a worker runs it."""
    from celery.app.trace import build_tracer

    def run(task_options, request, **conf):
        app.conf.update(conf)
        task = app.task(limit, name="unit.limit", lazy=False, shared=False, **task_options)
        traced = build_tracer(task.name, task, app=app)(
            "some id", (), {}, {"is_eager": False, "called_directly": False, **request}
        )
        return traced.retval

    return run


@pytest.mark.parametrize(
    ("options", "request_", "conf", "seen"),
    [
        ({}, {}, {}, None),
        ({}, {"timelimit": [None, None]}, {}, None),
        ({}, {"timelimit": [None, 5]}, {}, None),
        ({"time_limit": 300}, {"timelimit": [None, None]}, {}, 300.0),
        ({"time_limit": 300}, {"timelimit": [60, 5]}, {}, 60.0),
        ({}, {}, {"task_time_limit": 120}, 120.0),
        ({"soft_time_limit": 5}, {}, {}, None),
    ],
    ids=plainly,
)
def test_the_limit_is_the_messages_or_the_tasks_or_the_apps(told, options, request_, conf, seen):
    assert told(options, request_, **conf) == seen


def test_nothing_limits_a_task_that_is_eager_or_called_directly_or_no_task():
    app = Celery("unit", set_as_current=False)
    task = app.task(limit, name="unit.limit", time_limit=300)
    assert (hard_limit_s(), task(), task.apply().get()) == (None, None, None)
