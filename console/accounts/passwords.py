"""Passwords that commands generate or read from the environment."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

if TYPE_CHECKING:
    from django.contrib.auth.models import User

PASSWORD_BYTES = 12


def generated() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)


def refuse_weak(variable: str, password: str, account: User) -> None:
    """Check a password by the rules of the page that changes passwords.

    Raises:
        CommandError: the password is weak; the text names the variable and the reasons.
    """
    try:
        validate_password(password, account)
    except ValidationError as error:
        raise CommandError(f"{variable} was rejected: {' '.join(error.messages)}") from error
