"""The collector app."""

from __future__ import annotations

from django.apps import AppConfig


class CollectorConfig(AppConfig):
    """Registers the collector app; its label is part of migrations and permissions."""

    name = "console.observe.collector"
    label = "collector"
