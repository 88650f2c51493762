"""The message history app."""

from __future__ import annotations

from django.apps import AppConfig


class FamilyConfig(AppConfig):
    """Registers the page of a message's history."""

    name = "console.messages.family"
    label = "family"
