"""The brokers app."""

from __future__ import annotations

from django.apps import AppConfig


class BrokersConfig(AppConfig):
    """Registers the brokers app; its label is part of migrations and permissions."""

    name = "console.broker.brokers"
    label = "brokers"
