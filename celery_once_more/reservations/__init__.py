"""Effects that happen once, wherever the process dies: rows in the user's own database, under a key each.

It knows neither the locks nor their store. A database layer is loaded when ``Reservations`` is made for it.
"""

from celery_once_more.exceptions import (
    AlreadyDone,
    Busy,
    FingerprintMismatch,
    LostReservation,
    OpenTransaction,
    OutcomeUnknown,
    PreviouslyFailed,
    ReservationError,
)
from celery_once_more.reservations.api import Reservations
from celery_once_more.reservations.care import Unknown
from celery_once_more.reservations.policy import ASSUME_DONE, CANNOT_SAY, NOT_DONE, REFUSE, REPEAT, Answer, Done, Policy, verify
from celery_once_more.reservations.reservation import Reservation

__all__ = [
    "ASSUME_DONE",
    "CANNOT_SAY",
    "NOT_DONE",
    "REFUSE",
    "REPEAT",
    "AlreadyDone",
    "Answer",
    "Busy",
    "Done",
    "FingerprintMismatch",
    "LostReservation",
    "OpenTransaction",
    "OutcomeUnknown",
    "Policy",
    "PreviouslyFailed",
    "Reservation",
    "ReservationError",
    "Reservations",
    "Unknown",
    "verify",
]
