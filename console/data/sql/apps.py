"""The SQL app."""

from __future__ import annotations

from django.apps import AppConfig


class SqlConfig(AppConfig):
    """Registers the SQL page and the saved queries."""

    name = "console.data.sql"
    label = "sql"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Let alert rules use scheduled queries."""
        from console.data.sql import scheduled
        from console.observe.alerts import queries

        queries.provide(
            queries.Queries(
                scheduled=scheduled.scheduled_queries,
                last_run=scheduled.current_run,
                completed_since=scheduled.completed_since,
            )
        )
