"""Unique Celery tasks: safe against duplicates, crashes and redelivery."""

from celery_once_more import signals
from celery_once_more.current import current_lock
from celery_once_more.exceptions import (
    ArgumentsError,
    ConfigurationError,
    DuplicateDropped,
    LockConflict,
    LockLost,
    OnceMoreError,
    StoreUnavailable,
)
from celery_once_more.info import LockInfo
from celery_once_more.lock_types import register_lock
from celery_once_more.result import UniqueResult
from celery_once_more.task import UniqueTask

__all__ = [
    "ArgumentsError",
    "ConfigurationError",
    "DuplicateDropped",
    "LockConflict",
    "LockInfo",
    "LockLost",
    "OnceMoreError",
    "StoreUnavailable",
    "UniqueResult",
    "UniqueTask",
    "current_lock",
    "register_lock",
    "signals",
]
