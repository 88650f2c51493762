"""The overview app."""

from __future__ import annotations

from django.apps import AppConfig


class OverviewConfig(AppConfig):
    """Registers the overview app; its label is part of migrations and permissions."""

    name = "console.observe.overview"
    label = "overview"
