"""`manage.py add_account NAME`: creates an account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from console.accounts import passwords
from console.audit.record import done_by_command
from console.env import Environment

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(BaseCommand):
    """Creates a reader, or an administrator with --administrator."""

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
        account = get_user_model()(
            username=name, is_staff=administrator, is_superuser=administrator
        )
        given = Environment().secret("TREBUCHET_ACCOUNT_PASSWORD")
        if given:
            passwords.refuse_weak("TREBUCHET_ACCOUNT_PASSWORD", given, account)
        password = given or passwords.generated()
        account.set_password(password)
        try:
            account.full_clean()
        except ValidationError as error:
            raise CommandError(f"{name!r} is refused: {' '.join(error.messages)}") from error
        account.save()
        done_by_command("account.create", name, after={"administrator": administrator})
        role = "Administrator" if administrator else "Reader"
        if given:
            self.stdout.write(f"{role} {name}, password as given in the environment.")
        else:
            self.stdout.write(f"{role} {name}, password {password} (shown this once).")
