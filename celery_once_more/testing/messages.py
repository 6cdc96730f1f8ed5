"""Messages of the task under test: made as its publisher makes them, unpacked as its worker does."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from celery import Celery, Task
from kombu import serialization
from kombu.exceptions import EncodeError

from celery_once_more.testing.errors import CrashTestError
from celery_once_more.testing.records import Message

#: kombu has no types
_dumps: Any = serialization.dumps
_loads: Any = serialization.loads


def first(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Message:
    """The message of a plain publish.

    Raises:
        CrashTestError: the arguments cannot travel.
    """
    app, task_id = task.app, str(uuid.uuid4())
    limits = {"time_limit": task.time_limit, "soft_time_limit": task.soft_time_limit}
    headers, _, body, _ = app.amqp.as_task_v2(task_id, task.name, tuple(args), dict(kwargs), **limits)
    return packed(app, task, headers, body)


def packed(app: Celery, task: Task, headers: Mapping[str, Any], body: Any) -> Message:
    """What was handed to the broker, as a record of its own.

    Raises:
        CrashTestError: the arguments cannot travel.
    """
    try:
        content_type, encoding, data = _dumps(body, serializer=task.serializer or app.conf.task_serializer)
    except EncodeError as exc:
        raise CrashTestError(f"task {task.name!r}: its arguments have no {task.serializer} form: {exc}") from exc
    raw = data.encode() if isinstance(data, str) else data
    return Message(
        task_id=headers["id"],
        body=base64.b64encode(raw).decode(),
        content_type=content_type,
        content_encoding=encoding,
        headers={key: value for key, value in headers.items() if key != "eta"},
        countdown_s=_seconds_until(headers.get("eta")),
    )


def unpacked(message: Message) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Arguments and the embedded callbacks, new objects at each call."""
    data = base64.b64decode(message.body)
    raw: Any = data if message.content_encoding == "binary" else data.decode(message.content_encoding)
    args, kwargs, embed = _loads(raw, message.content_type, message.content_encoding, accept={message.content_type})
    return args, kwargs, embed


def _seconds_until(eta: str | None) -> float:
    if not eta:
        return 0.0
    when = datetime.fromisoformat(eta)
    if when.tzinfo is None:
        when = when.replace(tzinfo=timezone.utc)
    return max((when - datetime.now(timezone.utc)).total_seconds(), 0.0)
