"""`manage.py take_off_second_step NAME`: let an account sign in with its password alone."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser

from console.accounts.second_step import device_of, turn_off
from console.people.audit.record import done_by_command


class Command(BaseCommand):
    """Removes an account's second step, for example when the only administrator lost the app."""

    help = "Let an account sign in with its password alone, until it sets up a second step again"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")

    def handle(self, *args: Any, **options: Any) -> None:
        account = get_user_model().objects.filter(username=options["name"]).first()
        if account is None or device_of(account) is None:
            raise CommandError(f"No account named {options['name']} has a second step.")
        turn_off(account)
        done_by_command("account.second-step-off", account.get_username())
        self.stdout.write(f"{account.get_username()} now signs in with a password alone.")
