"""The audit app."""

from __future__ import annotations

from django.apps import AppConfig


class AuditConfig(AppConfig):
    """Registers the audit app; its label is part of migrations and permissions."""

    name = "console.people.audit"
    label = "audit"
