"""The alerts app."""

from __future__ import annotations

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    """Registers the alerts app; its label is part of migrations and permissions."""

    name = "console.observe.alerts"
    label = "alerts"

    def ready(self) -> None:
        """Show when alerts fired and ended on charts."""
        from console.observe.alerts.marks import alert_marks
        from console.observe.history.additions import provide_marks

        provide_marks(alert_marks)
