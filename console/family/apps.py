"""The family app."""

from __future__ import annotations

from django.apps import AppConfig


class FamilyConfig(AppConfig):
    """Registers the page of a message's family."""

    name = "console.family"
    label = "family"
