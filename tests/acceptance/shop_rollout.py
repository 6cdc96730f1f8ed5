"""One task in several versions of its code, for ``celery -A shop_rollout``; ``SHOP_VERSION`` says which one a worker has."""

import os

from celery import Task
from shop import LATE
from shop_gated import _gated, app

from celery_once_more import UniqueTask

NAME = "shop_rollout.rolled"
VERSIONS = {
    "plain": {"base": Task},
    "unlocked": {"base": UniqueTask, "lock": None},
    "locked": {"base": UniqueTask, "lock": "until_executed", "lock_args": ["key"]},
}


def define(app, version):
    """The task of this version, in this app."""

    @app.task(bind=True, name=NAME, shared=False, **LATE, **VERSIONS[version])
    def rolled(self, key, retry=False):
        _gated(self, key)
        if retry and self.request.retries == 0:
            raise self.retry(countdown=0)
        return key

    return rolled


define(app, os.environ.get("SHOP_VERSION", "locked"))
