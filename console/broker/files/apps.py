"""The files app."""

from __future__ import annotations

from django.apps import AppConfig


class FilesConfig(AppConfig):
    """Registers the files app; its label is part of migrations and permissions."""

    name = "console.broker.files"
    label = "files"
