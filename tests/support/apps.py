"""Tasks and workers of apps that a test makes for itself (``app_fixtures.py``)."""

from contextlib import contextmanager

from celery.contrib.testing.worker import start_worker
from celery.signals import setup_logging

from celery_once_more import UniqueTask


def unique(app, function, **options):
    """``function`` as a unique task of this app."""
    options = {"base": UniqueTask, "lock": "until_executed", "name": f"{app.main}.{function.__name__}", "shared": False} | options
    return app.task(**options)(function)


@contextmanager
def working(app, pool="solo", **options):
    """``with working(app): …``: a worker in this process, whose pool is a thread of it, or ``pool="threads"``."""
    setup_logging.connect(_leave_logging_alone)
    try:
        with start_worker(app, perform_ping_check=False, pool=pool, shutdown_timeout=60, **options):
            yield
    finally:
        setup_logging.disconnect(_leave_logging_alone)


def _leave_logging_alone(**_):
    """With a receiver here Celery does not set up logging, which pytest listens to in this process."""
