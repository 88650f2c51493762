"""The lake app."""

from __future__ import annotations

from django.apps import AppConfig


class LakeConfig(AppConfig):
    """Registers the lake app; its label is part of migrations and permissions."""

    name = "console.data.lake"
    label = "lake"
