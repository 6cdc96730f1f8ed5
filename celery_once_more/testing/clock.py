"""The test's own time: leases lapse when it says so, in every process at once."""

from __future__ import annotations

import mmap
import struct

_SECONDS = struct.Struct("d")


class SharedClock:
    """Seconds by which the leases' clock is ahead; shared with every process forked after it was made."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SECONDS.size)

    @property
    def ahead_s(self) -> float:
        return float(_SECONDS.unpack_from(self._memory)[0])

    @ahead_s.setter
    def ahead_s(self, seconds: float) -> None:
        _SECONDS.pack_into(self._memory, 0, seconds)

    def close(self) -> None:
        self._memory.close()
