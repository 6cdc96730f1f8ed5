"""The message of the run that goes on here, once more."""

from __future__ import annotations

from typing import Any

from celery import Task


def again(task: Task, countdown: float) -> Any:
    """Its signature, to be published in ``countdown`` seconds: the same id and links, and no retry is counted."""
    request = task.request
    return task.signature_from_request(
        request,
        countdown=countdown,
        retries=request.retries,
        ignore_result=ignores_result(task, request),  # Celery 5.6 forgets it
        add_to_parent=False,
    )


def ignores_result(task: Task, request: Any) -> bool:
    """What the call says, else what the task says: ``Context`` has a default that looks like an answer."""
    said = vars(request).get("ignore_result")
    return bool(task.ignore_result if said is None else said)
