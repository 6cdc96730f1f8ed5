"""The app on a real Redis, and a worker that is forked from the test to run its tasks."""

import pytest
from support.forked_worker import watch

from celery_once_more.testing.worker import PreforkWorker


@pytest.fixture
def app(make_app):
    return make_app()


@pytest.fixture
def worker(app):
    with PreforkWorker(app, watch=watch) as worker:
        yield worker
