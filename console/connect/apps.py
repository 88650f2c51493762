"""The app with the template tags for connecting clients."""

from __future__ import annotations

from django.apps import AppConfig


class ConnectConfig(AppConfig):
    """Registers the template tags."""

    name = "console.connect"
    label = "connect"
