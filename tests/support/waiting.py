"""Wait for an event, with a deadline; never for a time."""

import time


def eventually(condition, *, within=30.0, what="the condition"):
    """Poll until ``condition()`` is true, and return what it returned."""
    deadline = time.monotonic() + within
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {within} s; last seen: {found!r}")
        time.sleep(0.02)
