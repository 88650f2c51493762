"""The SQL app."""

from __future__ import annotations

from django.apps import AppConfig


class SqlConfig(AppConfig):
    """Registers the SQL page and the saved queries."""

    name = "console.data.sql"
    label = "sql"
    default_auto_field = "django.db.models.BigAutoField"
