"""The broker_accounts app."""

from __future__ import annotations

from django.apps import AppConfig


class BrokerAccountsConfig(AppConfig):
    """Registers the broker_accounts app; its label is part of migrations and permissions."""

    name = "console.broker.broker_accounts"
    label = "broker_accounts"
