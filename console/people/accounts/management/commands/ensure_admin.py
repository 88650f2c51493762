"""`manage.py ensure_admin`: create the first administrator."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils.translation import gettext as _

from console.accounts import passwords
from console.accounts.lookalikes import refuse_lookalike
from console.accounts.roles import Role
from console.env import Environment
from console.people.audit.record import done_by_command


class Command(BaseCommand):
    """Creates an administrator if the console has no administrator; otherwise does nothing."""

    help = (
        "Create the first administrator. The name comes from TREBUCHET_ADMIN (default: admin), "
        "the password from TREBUCHET_ADMIN_PASSWORD or TREBUCHET_ADMIN_PASSWORD_FILE, "
        "or is generated and printed once"
    )

    def handle(self, *args: Any, **options: Any) -> None:
        env = Environment()
        users = get_user_model().objects
        with transaction.atomic():
            if users.filter(is_staff=True, is_active=True).exists():
                return
            username = env.text("TREBUCHET_ADMIN", "admin")
            given = env.secret("TREBUCHET_ADMIN_PASSWORD")
            if given:
                account = get_user_model()(username=username)
                passwords.refuse_weak("TREBUCHET_ADMIN_PASSWORD", given, account)
            password = given or passwords.generated()
            if users.filter(username=username).exists():
                raise CommandError(
                    f"An account named {username} exists but isn't an administrator; "
                    "set TREBUCHET_ADMIN to another name."
                )
            try:
                refuse_lookalike(username)
            except ValidationError as error:
                raise CommandError(f"TREBUCHET_ADMIN: {' '.join(error.messages)}") from error
            users.create_superuser(username=username, password=password)
            done_by_command("account.create", username, after={"role": Role.ADMINISTRATOR.value})
        if given:
            text = _("Administrator %(name)s, password from the environment.")
        else:
            text = _("Administrator %(name)s, password %(password)s (won't be shown again).")
        self.stdout.write(text % {"name": username, "password": password})
