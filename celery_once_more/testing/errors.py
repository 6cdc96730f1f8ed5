"""What a crash-point test says when it cannot be run at all: one sentence, and what would be right."""

from celery_once_more.exceptions import OnceMoreError


class CrashTestError(OnceMoreError):
    """This crash-point test says nothing about the task; the sentence names why, and what to change."""
