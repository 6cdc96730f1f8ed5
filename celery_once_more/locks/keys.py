"""Every key name: ``prefix:{bucket}:…``. The bucket, two hex digits of the digest, is the hash tag: all keys of one lock
share a Redis Cluster slot, and locks spread over 256 of them. Within a bucket, helpers are spread over 64 shards, small
enough for Redis to keep each as one compact list.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from functools import lru_cache

BUCKETS = 256
SHARDS = 64


class Keys:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def record(self, digest: str) -> str:
        return f"{self.bucket(_place(digest)[0])}{digest}"

    def due(self, digest: str) -> str:
        return self._sharded("due", digest)

    def done(self, digest: str) -> tuple[str, str]:
        """The young and the old generation of what is over."""
        return self._sharded("done", digest), self._sharded("old", digest)

    def token(self, digest: str) -> str:
        return f"{self.bucket(_place(digest)[0])}token"

    def bucket(self, bucket: int) -> str:
        """What every key of a bucket begins with."""
        return f"{self.prefix}:{{{bucket:02x}}}:"

    def due_of_bucket(self, bucket: int) -> list[str]:
        return [f"{self.bucket(bucket)}due:{shard}" for shard in range(SHARDS)]

    def _sharded(self, kind: str, digest: str) -> str:
        bucket, shard = _place(digest)
        return f"{self.bucket(bucket)}{kind}:{shard}"


@lru_cache(maxsize=4096)
def _place(digest: str) -> tuple[int, int]:
    first, second = urlsafe_b64decode(digest[:4])[:2]
    return first, second % SHARDS
