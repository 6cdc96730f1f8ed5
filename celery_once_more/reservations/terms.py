"""What a caller says about one reservation; checked, frozen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

from celery_once_more.exceptions import ConfigurationError
from celery_once_more.reservations.forms import fingerprint as fingerprint_of
from celery_once_more.reservations.policy import REPEAT, Policy
from celery_once_more.settings import seconds

Seconds = float | timedelta
Errors = type[BaseException] | tuple[type[BaseException], ...]


class Unset(Enum):
    """So that ``None`` can be said."""

    UNSET = "unset"


UNSET = Unset.UNSET

#: of ``repeat_within``: as long as the payment providers remember a key
REPEAT_WITHIN = timedelta(hours=24)
MAX_TAKEOVERS = 5
#: seconds that a lease lasts beyond the hard time limit of its task: the time in which Celery ends a child
MARGIN_S = 30.0
#: seconds; what is longer is a mistake of units
MAX_LEASE_S = 366 * 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class Terms:
    policy: Policy
    lease_us: int
    #: ``None``: for ever
    repeat_within_us: int | None
    max_takeovers: int
    fingerprint: str | None
    #: errors that say that nothing was done
    not_done: tuple[type[BaseException], ...]
    #: errors that no later attempt would mend
    final: tuple[type[BaseException], ...]


def check(
    *,
    on_unknown: Any,
    lease: Any,
    limit_s: float | None,
    repeat_within: Any = UNSET,
    max_takeovers: Any = UNSET,
    fingerprint: Any = None,
    not_done: Any = (),
    final: Any = (),
) -> Terms:
    """``limit_s``: the hard time limit of the task around the call, if there is one.

    Raises:
        ConfigurationError: one of them is wrong; the sentence names it.
        ReservationError: the fingerprint has no stable JSON form.
    """
    policy = _policy(on_unknown)
    for name, value in (("repeat_within", repeat_within), ("max_takeovers", max_takeovers)):
        if policy is not REPEAT and value is not UNSET:
            raise ConfigurationError(f"{name} belongs to on_unknown=REPEAT, and makes no sense with {policy}")
    if repeat_within is UNSET:
        repeat_within = REPEAT_WITHIN
    if max_takeovers is UNSET:
        max_takeovers = MAX_TAKEOVERS
    if isinstance(max_takeovers, bool) or not isinstance(max_takeovers, int) or max_takeovers < 0:
        raise ConfigurationError(f"max_takeovers must be a whole number of at least 0, not {max_takeovers!r}")
    return Terms(
        policy=policy,
        lease_us=lease_us(lease, limit_s),
        repeat_within_us=None if repeat_within is None else _us(seconds("repeat_within", repeat_within)),
        max_takeovers=max_takeovers,
        fingerprint=fingerprint_of(fingerprint),
        not_done=_errors("not_done", not_done),
        final=_errors("final", final),
    )


def lease_us(lease: Any, limit_s: float | None) -> int:
    return _us(_lease_s(lease, limit_s))


def _lease_s(lease: Any, limit_s: float | None) -> float:
    least = None if limit_s is None else limit_s + MARGIN_S
    if lease is None:
        if least is None:
            raise ConfigurationError(
                "lease must be given, in seconds: the longest time that the effect can take; it has a default only in a task "
                "with a hard time limit"
            )
        return least
    said = seconds("lease", lease)
    if said > MAX_LEASE_S:
        raise ConfigurationError(f"lease must be at most {MAX_LEASE_S:g} seconds, not {lease!r}")
    if least is not None and said < least:
        raise ConfigurationError(
            f"lease={lease!r} is shorter than the {least:g} s for which this task may run (its hard time limit of {limit_s:g} s, "
            f"and {MARGIN_S:g} s to end it): a second attempt could run beside it; leave lease out, or shorten time_limit"
        )
    return said


def _us(value: float) -> int:
    return int(value * 1_000_000)


def _policy(value: Any) -> Policy:
    if not isinstance(value, Policy):
        hint = "; did you mean verify(fn)?" if callable(value) else ""
        raise ConfigurationError(f"on_unknown must be REPEAT, REFUSE, ASSUME_DONE or verify(fn), not {value!r}{hint}")
    return value


def _errors(name: str, value: Any) -> tuple[type[BaseException], ...]:
    types = (value,) if isinstance(value, type) else value
    if not isinstance(types, (tuple, list)) or not all(isinstance(one, type) and issubclass(one, BaseException) for one in types):
        raise ConfigurationError(f"{name} must be a type of exception, or a tuple of such types, not {value!r}")
    return tuple(types)
