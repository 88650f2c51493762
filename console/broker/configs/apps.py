"""The configs app."""

from __future__ import annotations

from django.apps import AppConfig


class ConfigsConfig(AppConfig):
    """Registers the configs app; its label is part of migrations and permissions."""

    name = "console.broker.configs"
    label = "configs"
