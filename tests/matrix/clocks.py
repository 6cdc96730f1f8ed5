"""A worker whose clock is wrong, from its start on (``clock/sitecustomize.py``)."""

from pathlib import Path

TWO_MINUTES = 120


def off(seconds):
    """The environment of such a worker."""
    return {"PYTHONPATH": str(Path(__file__).parent / "clock"), "FLOOR_CLOCK": str(seconds)}
