"""Known devices: browsers in which an account has signed in, recognized by a signed cookie.

The cookie grants no access. It only gives its owner a separate counter of failed sign-ins, and
changing the account's password invalidates it.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core import signing

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser
    from django.http import HttpRequest, HttpResponse

SALT = "accounts.device"
LIFETIME = timedelta(days=180)
DEVICE_BYTES = 12
NAME_DIGITS = 12


def remember(response: HttpResponse, account: AbstractBaseUser) -> None:
    """Set the cookie that makes the response's browser a known device of the account."""
    content = [account.get_username(), password_mark(account), secrets.token_urlsafe(DEVICE_BYTES)]
    response.set_cookie(
        cookie_name(account.get_username()),
        signing.dumps(content, salt=SALT),
        max_age=LIFETIME,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Strict",
    )


def known(request: HttpRequest, username: str) -> str | None:
    """Return the known device of the account that sends this request, or None."""
    cookie = request.COOKIES.get(cookie_name(username))
    if not cookie:
        return None
    try:
        name, mark, device = signing.loads(cookie, salt=SALT, max_age=LIFETIME)
    except (signing.BadSignature, ValueError):
        return None
    account = get_user_model().objects.filter(username=username).first()
    if account is None or name != username or mark != password_mark(account):
        return None
    return str(device)


def cookie_name(username: str) -> str:
    """Return the account's cookie name; it differs per account because people share browsers."""
    digest = hashlib.sha256(username.encode()).hexdigest()[:NAME_DIGITS]
    return f"{settings.TREBUCHET_DEVICE_COOKIE_PREFIX}_{digest}"


def password_mark(account: AbstractBaseUser) -> str:
    # The stored hash has a random salt, so its digest reveals nothing about the password.
    return hashlib.sha256(account.password.encode()).hexdigest()[:16]
