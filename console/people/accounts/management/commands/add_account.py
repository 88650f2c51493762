"""`manage.py add_account NAME`: create an account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from console.accounts import passwords
from console.accounts.lookalikes import refuse_lookalike
from console.accounts.roles import Role, give_role
from console.env import Environment
from console.people.audit.record import done_by_command

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(BaseCommand):
    """Creates a viewer, or an operator or administrator with the matching option."""

    help = (
        "Create an account. The password comes from TREBUCHET_ACCOUNT_PASSWORD or "
        "TREBUCHET_ACCOUNT_PASSWORD_FILE, or is generated and printed once"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        role = parser.add_mutually_exclusive_group()
        role.add_argument(
            "--administrator",
            action="store_true",
            help="create an administrator, who can do everything (default: viewer)",
        )
        role.add_argument(
            "--operator",
            action="store_true",
            help="create an operator, who can change topics, groups and offsets",
        )

    def handle(
        self, *args: Any, name: str, administrator: bool, operator: bool, **options: Any
    ) -> None:
        users = get_user_model().objects
        if users.filter(username=name).exists():
            raise CommandError(f"An account named {name} already exists.")
        role = Role.OPERATOR if operator else Role.VIEWER
        if administrator:
            role = Role.ADMINISTRATOR
        account = get_user_model()(username=name)
        given = Environment().secret("TREBUCHET_ACCOUNT_PASSWORD")
        if given:
            passwords.refuse_weak("TREBUCHET_ACCOUNT_PASSWORD", given, account)
        password = given or passwords.generated()
        account.set_password(password)
        try:
            account.full_clean()
            refuse_lookalike(name)
        except ValidationError as error:
            raise CommandError(
                f"{name!r} isn't a valid name: {' '.join(error.messages)}"
            ) from error
        with transaction.atomic():
            account.save()
            give_role(account, role)
            done_by_command("account.create", name, after={"role": role.value})
        if given:
            self.stdout.write(
                f"Created {name} ({role.label}) with the password from the environment."
            )
        else:
            self.stdout.write(
                f"Created {name} ({role.label}) with password {password} (won't be shown again)."
            )
