"""The dead_letters app."""

from __future__ import annotations

from django.apps import AppConfig


class DeadLettersConfig(AppConfig):
    """Registers the dead_letters app; its label is part of migrations and permissions."""

    name = "console.messages.dead_letters"
    label = "dead_letters"
