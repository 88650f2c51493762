"""The verdicts app."""

from __future__ import annotations

from django.apps import AppConfig


class VerdictsConfig(AppConfig):
    """Registers the verdicts app; its label is part of migrations and permissions."""

    name = "console.observe.verdicts"
    label = "verdicts"

    def ready(self) -> None:
        """Show issues next to the charts of their subject."""
        from console.observe.history.additions import provide_issues
        from console.observe.verdicts.reading import verdicts_about

        provide_issues(verdicts_about)
