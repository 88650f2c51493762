"""The flow app."""

from __future__ import annotations

from django.apps import AppConfig


class FlowConfig(AppConfig):
    """Registers the flow app; its label is part of migrations and permissions."""

    name = "console.observe.flow"
    label = "flow"
