"""Pages for sign-in, sign-out, sessions and passwords."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model, login, logout, views as auth
from django.contrib.auth.decorators import login_not_required
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _, gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from console.accounts import devices, invitations, oidc, second_step, signed_in, throttle
from console.accounts.browsers import in_words
from console.accounts.models import SignedIn
from console.accounts.permissions import page
from console.lib.missing import MissingError
from console.people.accounts.forms import ChangePasswordForm, JoinForm, SignInForm
from console.people.audit.record import change, done, refused

if TYPE_CHECKING:
    from typing import Any

    from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
    from django.forms import BaseForm
    from django.http import HttpRequest, HttpResponse

GONE = gettext_lazy("This invitation link was used, revoked or has expired. Ask for a new one.")
RETRY_AFTER_S = {"locked": int(throttle.WINDOW.total_seconds()), "busy": 5}


class SignIn(auth.LoginView):
    """The sign-in page."""

    template_name = "accounts/sign_in.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        context["provider"] = settings.TREBUCHET_OIDC_NAME if oidc.is_on() else ""
        context["has_accounts"] = get_user_model().objects.exists()
        context["locked"] = any(code == "locked" for code, _ in problems(context["form"]))
        return context

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        account = form.get_user()
        if second_step.device_of(account) is not None:
            second_step.wait_for_code(self.request, account, self.get_success_url())
            return redirect("accounts:code")
        response = super().form_valid(form)
        devices.remember(response, account)
        signed_in.forget_ended()
        done(self.request, "account.sign-in", account.get_username())
        return response

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        response = super().form_invalid(form)
        for code, sentence in problems(form):
            refused(self.request, "account.sign-in", subject_of(form), sentence)
            set_status(response, code)
        return response


@login_not_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def join(request: HttpRequest, token: str) -> HttpResponse:
    """Let an invited person choose a password, once."""
    invitation = invitations.open_invitation(token)
    if invitation is None:
        raise MissingError(GONE)
    form = JoinForm(get_user_model()(username=invitation.name), request.POST or None)
    if request.method != "POST" or not form.is_valid():
        context = {"form": form, "invitation": invitation}
        return render(request, "accounts/join.html", context, status=422 if form.is_bound else 200)
    try:
        account = invitations.accept_invitation(invitation, form.cleaned_data["new_password1"])
    except invitations.InvitationUsedError:
        raise MissingError(GONE) from None
    # This ends the session of anyone else who was signed in in this browser.
    login(request, account)
    done(request, "account.join", account.get_username())
    answer = redirect("overview:index")
    devices.remember(answer, account)
    return answer


class SignOut(auth.LogoutView):
    """Ends the session."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return super().post(request, *args, **kwargs)
        with change(request, "account.sign-out", request.user.get_username()):
            return super().post(request, *args, **kwargs)


@page
def sessions(request: HttpRequest) -> HttpResponse:
    """Show the current account's sessions."""
    assert request.user.is_authenticated
    context = {"sessions": signed_in.sessions_of(request.user, request.session.session_key)}
    return render(request, "accounts/sessions.html", context)


@never_cache
@require_POST
def end_session(request: HttpRequest, session: int) -> HttpResponse:
    """End one of your sessions, including the current one."""
    assert request.user.is_authenticated
    row = get_object_or_404(SignedIn, pk=session, user=request.user)
    is_here = row.session_key == request.session.session_key
    before = {"browser": in_words(row.agent), "address": row.address}
    with change(request, "account.session-end", request.user.get_username(), before=before):
        signed_in.end([row.session_key])
        if is_here:
            logout(request)
    if is_here:
        return redirect("accounts:sign-in")
    messages.success(request, _("Session ended."))
    return redirect("accounts:sessions")


@never_cache
@require_POST
def end_sessions(request: HttpRequest) -> HttpResponse:
    """End all your sessions but the current one."""
    assert request.user.is_authenticated
    with change(request, "account.sessions-end", request.user.get_username()) as entry:
        count = signed_in.end_others(request.user, request.session.session_key)
        entry.after = {"ended": count}
    messages.success(request, signed_in.ended_sentence(count))
    return redirect("accounts:sessions")


class ChangePassword(auth.PasswordChangeView):
    """The page for changing the password, which ends your other sessions."""

    template_name = "accounts/password.html"
    form_class = ChangePasswordForm

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        before = self.request.session.session_key
        with change(self.request, "account.password", self.request.user.get_username()):
            response = super().form_valid(form)
        here = self.request.session.session_key
        signed_in.renamed(before, here)
        signed_in.end_others(form.user, here)
        devices.remember(response, form.user)
        messages.success(self.request, _("Password changed. Your other sessions were signed out."))
        return response

    def form_invalid(self, form: PasswordChangeForm) -> HttpResponse:
        response = super().form_invalid(form)
        for code, sentence in problems(form, "old_password"):
            if code in {"password_incorrect", "locked"}:
                refused(
                    self.request, "account.password", self.request.user.get_username(), sentence
                )
            set_status(response, code)
        return response


def problems(form: BaseForm, field: str = "__all__") -> list[tuple[str, str]]:
    """Return code and sentence of each problem of a form's field, or of the form as a whole."""
    errors = form.errors.as_data().get(field, [])
    return [(str(error.code), " ".join(error.messages)) for error in errors]


def set_status(response: HttpResponse, code: str) -> None:
    if code in RETRY_AFTER_S:
        # Not 503 for a full queue: anyone can cause it, and Django would log each response.
        response.status_code = HTTPStatus.TOO_MANY_REQUESTS
        response["Retry-After"] = str(RETRY_AFTER_S[code])


def subject_of(form: AuthenticationForm) -> str:
    """Return an attempt's account name; hide unknown names, which may be mistyped passwords."""
    username = form.cleaned_data.get("username", "")
    known = get_user_model().objects.filter(username=username).exists()
    return username if known else _("(no account with this name)")
