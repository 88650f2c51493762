"""The marks app."""

from __future__ import annotations

from django.apps import AppConfig


class MarksConfig(AppConfig):
    """Registers the marks app; its label is part of migrations and permissions."""

    name = "console.observe.marks"
    label = "marks"
