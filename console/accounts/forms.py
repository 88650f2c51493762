"""The forms of signing in."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from console.accounts import throttle

USERNAME_LENGTH_MAX = 150


class SignInForm(AuthenticationForm):
    """Asks for name, password; refuses without looking while the attempt is locked out."""

    error_messages = {
        "invalid_login": _("Name and password do not match."),
        "inactive": _("This account is switched off. Ask an administrator."),
        "locked": _("Too many failed attempts. Wait 15 minutes, then try again."),
    }

    def clean(self) -> dict[str, Any]:
        username = str(self.cleaned_data.get("username", ""))[:USERNAME_LENGTH_MAX]
        address = self.request.META.get("REMOTE_ADDR", "") if self.request else ""
        if throttle.is_locked(username, address):
            raise ValidationError(self.error_messages["locked"], code="locked")
        try:
            cleaned = super().clean()
        except ValidationError:
            throttle.record_failure(username, address)
            raise
        throttle.forget(username, address)
        return dict(cleaned)
