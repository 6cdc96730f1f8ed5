"""Every key name: ``prefix:{bucket}:…``. The bucket, two hex digits of the digest, is the hash tag: all keys of one lock
share a Redis Cluster slot, and locks spread over 256 of them. Within a bucket, helpers are spread over 64 shards, small
enough for Redis to keep each as one compact list.
"""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase, digits

BUCKETS = 256
SHARDS = 64
#: what each letter of URL-safe base64 stands for (RFC 4648)
_BITS = {letter: bits for bits, letter in enumerate(ascii_uppercase + ascii_lowercase + digits + "-_")}


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

    def looks(self) -> tuple[str, str]:
        """Waiting holders whose message was not found, and when each worker last answered whether it knows of them."""
        return f"{self.prefix}:{{looks}}:suspects", f"{self.prefix}:{{looks}}:workers"

    def due_of_bucket(self, bucket: int) -> list[str]:
        return [f"{self.bucket(bucket)}due:{shard}" for shard in range(SHARDS)]

    def _sharded(self, kind: str, digest: str) -> str:
        bucket, shard = _place(digest)
        return f"{self.bucket(bucket)}{kind}:{shard}"


def _place(digest: str) -> tuple[int, int]:
    """Bucket and shard: the first byte of a digest, and what its second byte ends with."""
    first, second, third = (_BITS[letter] for letter in digest[:3])
    return first << 2 | second >> 4, (second << 4 | third >> 2) % SHARDS
