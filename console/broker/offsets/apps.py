"""The offsets app."""

from __future__ import annotations

from django.apps import AppConfig


class OffsetsConfig(AppConfig):
    """Registers the offsets app; its label is part of migrations and permissions."""

    name = "console.broker.offsets"
    label = "offsets"
