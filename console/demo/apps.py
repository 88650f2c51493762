"""The demo app."""

from __future__ import annotations

from django.apps import AppConfig


class DemoConfig(AppConfig):
    """Registers the demo command, the buttons that run it."""

    name = "console.demo"
    label = "demo"
