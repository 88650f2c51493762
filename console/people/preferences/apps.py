"""The preferences app."""

from __future__ import annotations

from django.apps import AppConfig


class PreferencesConfig(AppConfig):
    """Registers the preferences app; its label is part of migrations and permissions."""

    name = "console.people.preferences"
    label = "preferences"
