"""The masking app."""

from __future__ import annotations

from django.apps import AppConfig


class MaskingConfig(AppConfig):
    """Registers the masking app; its label is part of migrations and permissions."""

    name = "console.people.masking"
    label = "masking"
