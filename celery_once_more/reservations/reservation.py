"""A claimed key, as the code that does the effect sees it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any


class Reservation:
    """This attempt's hold on a key, until its lease ends."""

    #: what ``reserve`` stores as the result; JSON
    result: Any = None

    def __init__(
        self, *, key: str, dedup_key: str, token: int, takeovers: int, extend: Callable[[float | timedelta | None], None]
    ) -> None:
        self._key, self._dedup_key, self._token, self._takeovers, self._extend = key, dedup_key, token, takeovers, extend

    @property
    def key(self) -> str:
        """As JSON."""
        return self._key

    @property
    def dedup_key(self) -> str:
        """For the far side: the same over all attempts, 40 hexadecimal digits, from which the key cannot be read."""
        return self._dedup_key

    @property
    def token(self) -> int:
        """Grows with each attempt, so that a store of your own can refuse the late write of an older one."""
        return self._token

    @property
    def takeovers(self) -> int:
        """How many attempts before this one did not tell how they ended; 0: this is the first that may do the effect."""
        return self._takeovers

    def headers(self) -> dict[str, str]:
        """For an HTTP request to a far side that honours them."""
        return {"Idempotency-Key": self.dedup_key}

    def extend(self, lease: float | timedelta | None = None) -> None:
        """Let the lease begin anew, as long as it was, or ``lease`` seconds long.

        Raises:
            LostReservation: it ended, or another attempt has the key; stop here.
        """
        self._extend(lease)

    def __repr__(self) -> str:
        return f"<Reservation {self.key}, token {self.token}>"
