"""The browse app."""

from __future__ import annotations

from django.apps import AppConfig


class BrowseConfig(AppConfig):
    """Registers the browse app; its label is part of migrations and permissions."""

    name = "console.messages.browse"
    label = "browse"
