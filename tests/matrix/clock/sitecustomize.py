"""A wrong clock for a worker: ``FLOOR_CLOCK`` seconds are added to what Python says is the time, from its first module on.

``faketime`` would do it for the whole process, but is not everywhere. Timers, which ask for no time of day, stay right.
"""

import ctypes
import datetime
import gc
import os
import time

_off_s = int(os.environ.get("FLOOR_CLOCK", 0))


def _shift():
    right, right_ns, now, utcnow = time.time, time.time_ns, datetime.datetime.now, datetime.datetime.utcnow
    off = datetime.timedelta(seconds=_off_s)
    time.time = lambda: right() + _off_s
    time.time_ns = lambda: right_ns() + _off_s * 10**9
    names = gc.get_referents(vars(datetime.datetime))[
        0
    ]  # a type of C refuses setattr; nothing else would reach who has it already
    names["now"] = classmethod(lambda cls, tz=None: now(tz) + off)
    names["utcnow"] = classmethod(lambda cls: utcnow() + off)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime.datetime))


if _off_s:
    _shift()
