"""The demo app."""

from __future__ import annotations

from django.apps import AppConfig


class DemoConfig(AppConfig):
    """Registers the demo command and the buttons that run it."""

    name = "console.demo"
    label = "demo"
