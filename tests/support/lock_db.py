"""What stands in the lock store, seen through plain redis-py."""

import re

_RECORD = re.compile(r"[^:]+:\{[0-9a-f]{2}\}:[A-Za-z0-9_-]{22}")


def held(client):
    """The digests of the locks that are held, or have lapsed and were not looked at since."""
    keys = (key if isinstance(key, str) else key.decode() for key in client.scan_iter(count=1000))
    return sorted(key.rpartition(":")[2] for key in keys if _RECORD.fullmatch(key))
