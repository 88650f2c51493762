"""Forms for sign-in, passwords and invitations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.auth import get_user_model
from django.contrib.auth.forms import (
    AuthenticationForm,
    PasswordChangeForm,
    SetPasswordForm,
    UsernameField,
)
from django.contrib.auth.password_validation import password_validators_help_texts
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from console.accounts import devices, throttle
from console.accounts.hashing import BusyError, strangers_line
from console.accounts.lookalikes import refuse_lookalike
from console.accounts.models import INVITATIONS_MAX, NAME_CHARACTERS_MAX, CustomRole, Invitation
from console.accounts.roles import Role

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    # Django's class isn't generic at run time.
    NewPasswordForm = SetPasswordForm[User]
else:
    NewPasswordForm = SetPasswordForm

LOCKED = _("Too many failed attempts. Wait 15 minutes, then try again.")


class SignInForm(AuthenticationForm):
    """Asks for name and password; counts each attempt before checking the password."""

    error_messages = {
        "invalid_login": _("Wrong name or password."),
        "inactive": _("This account is disabled. Ask an administrator."),
        "locked": LOCKED,
        "busy": _("Too many people are signing in right now. Wait a moment, then try again."),
    }

    def clean(self) -> dict[str, Any]:
        username = self.cleaned_data.get("username")
        if not username or not self.cleaned_data.get("password") or self.request is None:
            return dict(super().clean())
        device = devices.known(self.request, username)
        if device is not None:
            attempt = throttle.known_device(device)
            try:
                attempt.count()
            except throttle.RefusedError:
                # Someone is guessing in this browser, so treat it as unknown from now on.
                device = None
            else:
                return self._checked(attempt)
        attempt = throttle.stranger(username, self.request.META.get("REMOTE_ADDR", ""))
        try:
            attempt.count()
        except throttle.LockedError:
            raise self._error("locked") from None
        except throttle.UncountableError:
            raise self._error("busy") from None
        try:
            with strangers_line.turn():
                return self._checked(attempt)
        except BusyError:
            attempt.uncount()
            raise self._error("busy") from None

    def _checked(self, attempt: throttle.Attempt) -> dict[str, Any]:
        """Check the password; a failed attempt stays counted."""
        cleaned = super().clean()
        attempt.succeeded()
        return dict(cleaned)

    def _error(self, code: str) -> ValidationError:
        return ValidationError(self.error_messages[code], code=code)


class ChangePasswordForm(PasswordChangeForm):
    """Asks for the old password, rate-limited like a sign-in because the session may be stolen."""

    error_messages = {
        **PasswordChangeForm.error_messages,
        "password_incorrect": _("The old password is wrong."),
        "locked": LOCKED,
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Django's help text is a list, which doesn't fit below a field.
        self.fields["new_password1"].help_text = " ".join(password_validators_help_texts())

    def clean_old_password(self) -> str:
        attempt = throttle.password_change(self.user.pk)
        try:
            attempt.count()
        except throttle.RefusedError:
            raise ValidationError(self.error_messages["locked"], code="locked") from None
        old_password = str(super().clean_old_password())
        attempt.succeeded()
        return old_password


class CodeForm(forms.Form):
    """Asks for a code from the app, or a recovery code."""

    code = forms.CharField(
        label=_("Code"),
        max_length=40,
        widget=forms.TextInput(
            attrs={
                "autocomplete": "one-time-code",
                "autofocus": True,
                "class": "input mono",
                "spellcheck": "false",
            }
        ),
        help_text=_("The six-digit code from your app, or one of your recovery codes."),
    )


class InvitationForm(forms.Form):
    """Asks for an invitation's name and role."""

    name = UsernameField(
        label=_("Name"),
        max_length=NAME_CHARACTERS_MAX,
        validators=[UnicodeUsernameValidator()],
        help_text=_("Used to sign in."),
    )
    role = forms.ChoiceField(label=_("Role"), choices=Role.choices, initial=Role.VIEWER)
    custom_roles = forms.ModelMultipleChoiceField(
        label=_("Custom roles"),
        queryset=CustomRole.objects.all(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )
    mail = forms.EmailField(
        label=_("E-mail address"),
        required=False,
        help_text=_("The link is also sent to this address."),
    )

    def __init__(self, *args: Any, has_mail: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not has_mail:
            del self.fields["mail"]
        if not CustomRole.objects.exists():
            del self.fields["custom_roles"]

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        if get_user_model().objects.filter(username__iexact=name).exists():
            raise ValidationError(_("An account with this name already exists."))
        invited = Invitation.objects.filter(name__iexact=name, expires_at__gt=timezone.now())
        if invited.exists():
            raise ValidationError(_("This name has already been invited."))
        refuse_lookalike(name)
        return name

    def clean(self) -> dict[str, Any]:
        if Invitation.objects.count() >= INVITATIONS_MAX:
            raise ValidationError(_("There are too many pending invitations. Revoke some first."))
        return dict(super().clean() or {})


class JoinForm(NewPasswordForm):
    """Asks an invited person to choose a password."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["new_password1"].label = _("Password")
        self.fields["new_password1"].help_text = " ".join(password_validators_help_texts())
        self.fields["new_password2"].label = _("Repeat password")
