"""The tracing app."""

from __future__ import annotations

from django.apps import AppConfig


class TracingConfig(AppConfig):
    """Registers the Live page."""

    name = "console.messages.tracing"
    label = "tracing"
