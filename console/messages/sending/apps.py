"""The sending app."""

from __future__ import annotations

from django.apps import AppConfig


class SendingConfig(AppConfig):
    """Registers the sending app; its label is part of migrations and permissions."""

    name = "console.messages.sending"
    label = "sending"
