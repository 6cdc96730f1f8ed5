"""SQL with ``:name`` for its parameters -> the same with ``%(name)s``, which Django's cursors take. Pure."""

from __future__ import annotations

import functools
import re

#: a text in quotes, a per cent sign, or a parameter; ``::`` is a cast of PostgreSQL
_MARKS = re.compile(r"(?P<text>'(?:[^']|'')*')|%|(?<!:):(?P<name>[a-z_]\w*)")


@functools.lru_cache(maxsize=256)
def pyformat(sql: str) -> str:
    return _MARKS.sub(lambda mark: f"%({mark['name']})s" if mark["name"] else mark[0].replace("%", "%%"), sql)
