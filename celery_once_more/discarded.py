"""Messages that a worker throws away before they are anybody's request: their locks would wait for nothing."""

from __future__ import annotations

from typing import Any

from celery import signals

from celery_once_more import report, ticket
from celery_once_more.exceptions import StoreUnavailable
from celery_once_more.runtime import runtime


def watch(consumer: Any) -> None:
    """Free the locks of what this worker's consumer throws away; for a body that cannot be decoded Celery has no signal."""
    for signal, receiver in ((signals.task_unknown, _unknown), (signals.task_rejected, _rejected)):
        signal.connect(receiver, weak=False, dispatch_uid=f"celery_once_more.{receiver.__name__}")
    throw_away = consumer.on_decode_error

    def on_decode_error(message: Any, exc: Exception) -> Any:
        try:
            return throw_away(message, exc)
        finally:
            _free(consumer, message, "its message cannot be decoded")

    consumer.on_decode_error = on_decode_error


def _unknown(sender: Any, message: Any, **_: Any) -> None:
    _free(sender, message, "its worker does not know the task")


def _rejected(sender: Any, message: Any, **_: Any) -> None:
    _free(sender, message, "its message was refused")


def _free(consumer: Any, message: Any, reason: str) -> None:
    headers = message.headers or {}
    found = ticket.read(headers.get(ticket.HEADER), task=str(headers.get("task")), task_id=str(headers.get("id")))
    if found is None:
        return
    try:
        if runtime(consumer.app).store.release(found):
            report.released(found, reason)
    except StoreUnavailable as exc:
        report.unavailable(found, "release", exc, "its lock ends with its queue lease")
