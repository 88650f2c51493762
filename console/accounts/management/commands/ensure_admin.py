"""`manage.py ensure_admin`: the first administrator."""

from __future__ import annotations

import secrets
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from console.env import Environment

PASSWORD_BYTES = 12


class Command(BaseCommand):
    """Makes an administrator when there is none; says nothing when there is one."""

    help = (
        "Make the first administrator. The name comes from TREBUCHET_ADMIN (default: admin), "
        "the password from TREBUCHET_ADMIN_PASSWORD or TREBUCHET_ADMIN_PASSWORD_FILE, "
        "else one is generated and printed once."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        env = Environment()
        users = get_user_model().objects
        with transaction.atomic():
            if users.filter(is_staff=True, is_active=True).exists():
                return
            username = env.text("TREBUCHET_ADMIN", "admin")
            given = env.secret("TREBUCHET_ADMIN_PASSWORD")
            password = given or secrets.token_urlsafe(PASSWORD_BYTES)
            if given:
                refuse_weak(given)
            if users.filter(username=username).exists():
                raise CommandError(
                    f"An account named {username} exists without being an administrator; "
                    "set TREBUCHET_ADMIN to another name."
                )
            users.create_superuser(username=username, password=password)
        if given:
            self.stdout.write(f"Administrator {username}, password as given in the environment.")
        else:
            self.stdout.write(f"Administrator {username}, password {password} (shown this once).")


def refuse_weak(password: str) -> None:
    try:
        validate_password(password)
    except ValidationError as error:
        raise CommandError(
            f"TREBUCHET_ADMIN_PASSWORD is refused: {' '.join(error.messages)}"
        ) from error
