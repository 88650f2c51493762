"""The verdicts app."""

from __future__ import annotations

from django.apps import AppConfig


class VerdictsConfig(AppConfig):
    """Registers the verdicts app; its label is part of migrations and permissions."""

    name = "console.observe.verdicts"
    label = "verdicts"
