"""Calls that wait for a commit, the same for every database layer."""

import pytest

from celery_once_more import ArgumentsError, ConfigurationError


def ship(order, note=None):
    return order


#: a call that is wrong in itself: arguments, options, and the error
BAD_CALLS = [
    pytest.param((), {}, TypeError, "missing 1 required positional argument", id="arguments that do not fit"),
    pytest.param(({1, 2},), {}, ArgumentsError, "argument order has no stable JSON form", id="no stable form"),
    pytest.param(("order_1",), {"on_conflict": "rais"}, ConfigurationError, "did you mean 'raise'", id="wrong option"),
]


def broker_away(nowhere):
    """Settings of an app whose broker is down, and which does not wait for it to come back."""
    at_once = {"max_retries": 0, "interval_start": 0, "interval_step": 0}
    return {"broker_url": nowhere, "task_publish_retry": False, "broker_transport_options": at_once}
