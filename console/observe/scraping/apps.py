"""The scraping app."""

from __future__ import annotations

from django.apps import AppConfig


class ScrapingConfig(AppConfig):
    """Registers the scraping app; its label is part of migrations and permissions."""

    name = "console.observe.scraping"
    label = "scraping"
