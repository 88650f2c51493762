"""Signing in by OpenID Connect: to the provider, and back from it."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib.auth import REDIRECT_FIELD_NAME, login
from django.contrib.auth.decorators import login_not_required
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from console.accounts import oidc, signed_in
from console.accounts.oidc import AwayError, NotLetInError
from console.accounts.second_step_views import BACKEND
from console.audit.record import change, done, refused
from console.ui.missing import MissingError

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

NEXT = "oidc_next"
NEXT_CHARACTERS_MAX = 2_000


@login_not_required
@never_cache
@require_safe
def begin(request: HttpRequest) -> HttpResponse:
    """Lead a stranger to the provider."""
    require_on()
    if request.user.is_authenticated:
        return redirect(settings.LOGIN_REDIRECT_URL)
    try:
        answer = oidc.begin(request)
    except AwayError as error:
        return away(request, error)
    except NotLetInError as error:
        return not_let_in(request, error)
    request.session[NEXT] = request.GET.get(REDIRECT_FIELD_NAME, "")[:NEXT_CHARACTERS_MAX]
    return answer


@login_not_required
@never_cache
@require_safe
def callback(request: HttpRequest) -> HttpResponse:
    """Sign in whom the provider has sent back."""
    require_on()
    wanted = str(request.session.get(NEXT, ""))
    try:
        entered = oidc.finish(request)
    except AwayError as error:
        return away(request, error)
    except NotLetInError as error:
        return not_let_in(request, error)
    account, name = entered.account, entered.account.get_username()
    login(request, account, backend=BACKEND)
    request.session.pop(NEXT, None)
    signed_in.forget_ended()
    done(request, "account.sign-in", name, after={"with": settings.TREBUCHET_OIDC_ISSUER})
    if entered.before is None:
        done(request, "account.join", name, after=entered.after)
    elif entered.before != entered.after:
        with change(request, "account.role", name, before=entered.before, after=entered.after):
            pass
    return redirect(next_of(request, wanted))


def require_on() -> None:
    if not oidc.is_on():
        raise MissingError(_("This console has accounts of its own alone."))


def next_of(request: HttpRequest, wanted: str) -> str:
    """Return where somebody wanted to go, if that is here."""
    hosts = {request.get_host()}
    is_ours = url_has_allowed_host_and_scheme(wanted, hosts, require_https=request.is_secure())
    return wanted if wanted and is_ours else reverse(settings.LOGIN_REDIRECT_URL)


def away(request: HttpRequest, error: AwayError) -> HttpResponse:
    """Say that the provider is away; the password of an account of this console still opens it."""
    cause = error.__cause__
    sentence = _(
        "%(name)s does not answer as it should. Try again, or sign in with the password of an "
        "account of this console."
    ) % {"name": settings.TREBUCHET_OIDC_NAME}
    refused(request, "account.sign-in", "", f"{sentence} ({type(cause).__name__})")
    return said(request, sentence, HTTPStatus.SERVICE_UNAVAILABLE)


def not_let_in(request: HttpRequest, error: NotLetInError) -> HttpResponse:
    refused(request, "account.sign-in", error.subject, str(error))
    return said(request, str(error), HTTPStatus.FORBIDDEN)


def said(request: HttpRequest, sentence: str, status: HTTPStatus) -> HttpResponse:
    """Show the page of signing in, with why it did not work."""
    context = {"sentence": sentence, "provider": settings.TREBUCHET_OIDC_NAME}
    return render(request, "accounts/not_let_in.html", context, status=status)
