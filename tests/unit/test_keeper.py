"""Which messages a worker's memory has, whatever its pool keeps time with."""

from types import SimpleNamespace

import pytest
from celery.utils.imports import symbol_by_name
from celery.worker.request import Request

from celery_once_more.keeper import held_back

#: of prefork and threads, and of greenlets; eventlet's does as gevent's
TIMERS = ("kombu.asynchronous.timer:Timer", "celery.concurrency.gevent:Timer")


@pytest.mark.parametrize("name", TIMERS)
def test_a_request_that_waits_for_its_eta_is_found_in_the_timer_of_each_pool(name):
    timer, request = symbol_by_name(name)(), object.__new__(Request)
    timer.call_after(3600, print, (request,))
    timer.call_after(3600, print, ("something else",))
    timer.call_after(3600, print)
    assert held_back(SimpleNamespace(timer=timer, task_buckets={})) == [request]
    timer.clear()
