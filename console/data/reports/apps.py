"""The reports app."""

from __future__ import annotations

from django.apps import AppConfig


class ReportsConfig(AppConfig):
    """Registers the report pages and their tasks."""

    name = "console.data.reports"
    label = "reports"
    default_auto_field = "django.db.models.BigAutoField"
