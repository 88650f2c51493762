"""The topics app."""

from __future__ import annotations

from django.apps import AppConfig


class TopicsConfig(AppConfig):
    """Registers the topics app; its label is part of migrations and permissions."""

    name = "console.broker.topics"
    label = "topics"
