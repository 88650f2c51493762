"""The history app."""

from __future__ import annotations

from django.apps import AppConfig


class HistoryConfig(AppConfig):
    """Registers the history app; its label is part of migrations and permissions."""

    name = "console.observe.history"
    label = "history"
