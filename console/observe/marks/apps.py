"""The marks app."""

from __future__ import annotations

from django.apps import AppConfig


class MarksConfig(AppConfig):
    """Registers the marks app; its label is part of migrations and permissions."""

    name = "console.observe.marks"
    label = "marks"

    def ready(self) -> None:
        """Show marks on charts."""
        from console.observe.history.additions import provide_marks
        from console.observe.marks.setting import deployment_marks

        provide_marks(lambda kind, name, low_ms, high_ms: deployment_marks(low_ms, high_ms))
