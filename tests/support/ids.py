"""Names of parametrized tests that are the same in every process."""

import re


def plainly(value):
    """``repr`` without the address of what has no text of its own."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
