"""Reservations as a person sees them: a list to read, and two words to say of what nobody knows."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from django.contrib import admin, messages

from celery_once_more.django.models import Reservation
from celery_once_more.exceptions import ReservationError
from celery_once_more.reservations import Reservations
from celery_once_more.reservations.keys import run_key, value_of


def _time(name: str, words: str) -> Any:
    """A column for a time, which is microseconds since the epoch in the row; 0 is none."""

    @admin.display(description=words, ordering=name, empty_value="-")
    def show(row: Reservation) -> datetime | None:
        us = getattr(row, name)
        return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=us) if us else None

    show.__name__ = name
    return show


@admin.register(Reservation)
class ReservationAdmin(admin.ModelAdmin):
    list_display = [
        "label", "state", "token", "takeovers",
        _time("since", "since"), _time("lease_until", "lease until"), _time("updated_at", "updated"),
    ]  # fmt: skip
    list_filter = ["state"]
    search_fields = ["label", "dedup_key"]
    ordering = ["-updated_at"]
    actions = ["resolve_as_done", "resolve_as_not_done"]

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_resolve_permission(self, request: Any) -> bool:
        """Of whoever may change the model, though here by these actions alone."""
        return super().has_change_permission(request)

    @admin.action(description="Resolve as done", permissions=["resolve"])
    def resolve_as_done(self, request: Any, queryset: Any) -> None:
        """With the result ``None``; another is said with ``Reservations.resolve``."""
        self._resolve(request, queryset, {"done": None})

    @admin.action(description="Resolve as not done", permissions=["resolve"])
    def resolve_as_not_done(self, request: Any, queryset: Any) -> None:
        self._resolve(request, queryset, {"not_done": True})

    def _resolve(self, request: Any, queryset: Any, said: dict[str, Any]) -> None:
        reservations, resolved = Reservations.django(queryset.select_for_update().db), 0  # where it would write
        for row in queryset:
            key = value_of(row.label)
            if run_key(key).dedup_key != row.dedup_key:
                messages.warning(request, f"{row.label}: a marker of once() has no outcome to resolve")
                continue
            try:
                reservations.resolve(key, **said)
                resolved += 1
            except ReservationError as exc:
                messages.warning(request, str(exc))
        if resolved:
            messages.success(request, f"Resolved: {resolved}.")
