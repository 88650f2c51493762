"""The alerts app."""

from __future__ import annotations

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    """Registers the alerts app; its label is part of migrations and permissions."""

    name = "console.observe.alerts"
    label = "alerts"
