"""`manage.py add_account NAME`: somebody else who may sign in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from console.accounts import passwords
from console.env import Environment

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(BaseCommand):
    """Makes a reader, or with --administrator somebody who may change things."""

    help = (
        "Make an account. The password comes from TREBUCHET_ACCOUNT_PASSWORD or "
        "TREBUCHET_ACCOUNT_PASSWORD_FILE, else one is generated and printed once."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument(
            "--administrator", action="store_true", help="may change things; others only look"
        )

    def handle(self, *args: Any, name: str, administrator: bool, **options: Any) -> None:
        users = get_user_model().objects
        if users.filter(username=name).exists():
            raise CommandError(f"An account named {name} exists.")
        given = Environment().secret("TREBUCHET_ACCOUNT_PASSWORD")
        if given:
            passwords.refuse_weak("TREBUCHET_ACCOUNT_PASSWORD", given)
        password = given or passwords.generated()
        account = get_user_model()(
            username=name, is_staff=administrator, is_superuser=administrator
        )
        account.set_password(password)
        try:
            account.full_clean()
        except ValidationError as error:
            raise CommandError(f"{name!r} is refused: {' '.join(error.messages)}") from error
        account.save()
        role = "Administrator" if administrator else "Reader"
        if given:
            self.stdout.write(f"{role} {name}, password as given in the environment.")
        else:
            self.stdout.write(f"{role} {name}, password {password} (shown this once).")
