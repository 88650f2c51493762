"""The pages of the accounts app."""

from __future__ import annotations

from django.apps import AppConfig


class AccountPagesConfig(AppConfig):
    """Registers the pages and commands; the models are in console.accounts."""

    name = "console.people.accounts"
    label = "account_pages"
