"""Views of signing in and of passwords."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.contrib.auth import get_user_model, views as auth
from django.utils.translation import gettext as _

from console.accounts.forms import SignInForm

if TYPE_CHECKING:
    from typing import Any

    from django.contrib.auth.forms import PasswordChangeForm
    from django.http import HttpResponse


class SignIn(auth.LoginView):
    """The page strangers see."""

    template_name = "accounts/sign_in.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        context["has_accounts"] = get_user_model().objects.exists()
        return context


class ChangePassword(auth.PasswordChangeView):
    """The page where people choose a new password; their other sessions end."""

    template_name = "accounts/password.html"

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        response = super().form_valid(form)
        messages.success(self.request, _("The password is changed; other sessions are signed out."))
        return response
