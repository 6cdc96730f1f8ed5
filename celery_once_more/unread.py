"""Whether a message may stand in what a Redis broker has answered a worker, and that worker has not read.

kombu asks for one message at a time, with a command that waits. While the prefetch is full it leaves the answer where it is,
in the socket: its message is in no queue any more and in no worker's hands yet, for as long as a run takes.
"""

from __future__ import annotations

import array
from typing import Any

try:
    import fcntl
    import termios
except ImportError:  # a system without these has no worker's loop that would leave an answer unread
    fcntl = termios = None  # type: ignore[assignment]

#: that there is no message
NOTHING = len(b"*-1\r\n")


def unread(consumer: Any) -> bool:
    """Asked of a worker's consumer, from any thread; nothing is read, and no loop waits for it."""
    channel = getattr(getattr(consumer, "task_consumer", None), "channel", None)
    sock = getattr(getattr(channel, "_in_poll", None), "_sock", None)
    if sock is None or fcntl is None:
        return False
    size = array.array("i", [0])
    try:
        fcntl.ioctl(sock.fileno(), termios.FIONREAD, size)
    except (OSError, ValueError):  # it was closed just now
        return False
    return size[0] > NOTHING
