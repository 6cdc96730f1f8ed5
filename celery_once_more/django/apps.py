from __future__ import annotations

from django.apps import AppConfig


class OnceMore(AppConfig):
    name = "celery_once_more.django"
    label = "once_more"
    verbose_name = "Once more"
    default_auto_field = "django.db.models.BigAutoField"
