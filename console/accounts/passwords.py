"""Passwords that the command line gives out."""

from __future__ import annotations

import secrets

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

PASSWORD_BYTES = 12


def generated() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)


def refuse_weak(variable: str, password: str) -> None:
    """Refuse a given password by the same rules as the page that changes it.

    Raises:
        CommandError: what is wrong with it, under the name of the variable it came from.
    """
    try:
        validate_password(password)
    except ValidationError as error:
        raise CommandError(f"{variable} is refused: {' '.join(error.messages)}") from error
