"""The groups app."""

from __future__ import annotations

from django.apps import AppConfig


class GroupsConfig(AppConfig):
    """Registers the groups app; its label is part of migrations and permissions."""

    name = "console.broker.groups"
    label = "groups"
