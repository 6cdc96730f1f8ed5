"""Tests that a task survives dying anywhere; and what the ordinary tests of unique tasks need.

A pytest plugin: its fixtures are there once the package is installed. Nothing here imports pytest but the plugin, so that a
task may import :func:`crash_point`.
"""

from celery_once_more.crash import crash_point
from celery_once_more.testing.crash_points import CrashPoints
from celery_once_more.testing.errors import CrashTestError
from celery_once_more.testing.far_sides import FarSide
from celery_once_more.testing.locks import assert_locked, assert_not_locked, release_all
from celery_once_more.testing.report import Report

__all__ = [
    "CrashPoints",
    "CrashTestError",
    "FarSide",
    "Report",
    "assert_locked",
    "assert_not_locked",
    "crash_point",
    "release_all",
]
