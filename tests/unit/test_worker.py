"""The main process's own ends, without a worker."""

from types import SimpleNamespace

from celery import Celery
from celery.worker.request import Request

from celery_once_more.runtime import runtime
from celery_once_more.worker import UniqueRequest


def test_a_run_is_known_to_be_revoked_before_the_store_is_asked_how_it_stands(monkeypatch):
    """The answer takes a moment, in which a greenlet can end: it would leave its lock to a message that never comes again."""
    app = Celery("app", set_as_current=False)
    app.conf.once_more_redis_url = "redis://127.0.0.1:1/0"
    seen = []
    monkeypatch.setattr(Request, "_announce_revoked", lambda *args: None)
    monkeypatch.setattr(UniqueRequest, "_stands", lambda self: seen.append("run id" in runtime(app).lingering) or "running")
    request = UniqueRequest.__new__(UniqueRequest)
    request.once_more_run, request._app = SimpleNamespace(run_id="run id"), app
    request._announce_revoked("terminated", True, "9", False)
    assert seen == [True]
