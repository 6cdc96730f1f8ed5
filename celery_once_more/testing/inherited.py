"""A forked process forgets the connections of its parent, and the parent's stay as they are.

Both share the sockets: whoever closes such a connection as it should be closed says goodbye for both. So each is replaced by
nothing first, in the child alone; then every library drops what is its own.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Container
from multiprocessing import util
from pathlib import Path

#: where a process finds its own open files
OPEN = Path("/dev/fd")


def cut_inherited_sockets(keep: Container[int] = ()) -> None:
    """To be called in the child, before anything else.

    Args:
        keep: file descriptors to leave alone.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in map(int, os.listdir(OPEN)):
        if descriptor not in keep and _leads_elsewhere(descriptor):
            os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
    util._run_after_forkers()  # type: ignore[attr-defined]  # what multiprocessing, and so Celery's own pool, does here


def _leads_elsewhere(descriptor: int) -> bool:
    """A socket that is connected, and not merely one of a pair: two processes may talk through that."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as found:
            return bool(found.getpeername() or found.getsockname())
    except OSError:  # closed meanwhile, or not connected
        return False
