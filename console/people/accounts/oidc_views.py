"""Sign-in through OpenID Connect: the redirect to the provider, and the callback."""

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
from console.accounts.oidc import ProviderUnreachableError, SignInRefusedError
from console.lib.missing import MissingError
from console.people.accounts.second_step_views import BACKEND
from console.people.audit.record import change, done, refused

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

NEXT = "oidc_next"
NEXT_CHARACTERS_MAX = 2_000


@login_not_required
@never_cache
@require_safe
def begin(request: HttpRequest) -> HttpResponse:
    """Redirect to the provider."""
    require_on()
    if request.user.is_authenticated:
        return redirect(settings.LOGIN_REDIRECT_URL)
    try:
        answer = oidc.begin(request)
    except ProviderUnreachableError as error:
        return show_unreachable(request, error)
    except SignInRefusedError as error:
        return sign_in_failed(request, error)
    request.session[NEXT] = request.GET.get(REDIRECT_FIELD_NAME, "")[:NEXT_CHARACTERS_MAX]
    return answer


@login_not_required
@never_cache
@require_safe
def callback(request: HttpRequest) -> HttpResponse:
    """Sign in the person whom the provider sent back."""
    require_on()
    wanted = str(request.session.get(NEXT, ""))
    try:
        entered = oidc.finish(request)
    except ProviderUnreachableError as error:
        return show_unreachable(request, error)
    except SignInRefusedError as error:
        return sign_in_failed(request, error)
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
        raise MissingError(_("This console uses local accounts only."))


def next_of(request: HttpRequest, wanted: str) -> str:
    """Return the page that the person wanted, if it is on this site."""
    hosts = {request.get_host()}
    is_ours = url_has_allowed_host_and_scheme(wanted, hosts, require_https=request.is_secure())
    return wanted if wanted and is_ours else reverse(settings.LOGIN_REDIRECT_URL)


def show_unreachable(request: HttpRequest, error: ProviderUnreachableError) -> HttpResponse:
    """Show that the provider is unreachable; local passwords still work."""
    cause = error.__cause__
    sentence = _(
        "%(name)s isn't responding correctly. Try again, or sign in with the password of a "
        "local account."
    ) % {"name": settings.TREBUCHET_OIDC_NAME}
    refused(request, "account.sign-in", "", f"{sentence} ({type(cause).__name__})")
    return show_failure(request, sentence, HTTPStatus.SERVICE_UNAVAILABLE)


def sign_in_failed(request: HttpRequest, error: SignInRefusedError) -> HttpResponse:
    refused(request, "account.sign-in", error.subject, str(error))
    return show_failure(request, str(error), HTTPStatus.FORBIDDEN)


def show_failure(request: HttpRequest, sentence: str, status: HTTPStatus) -> HttpResponse:
    """Show the sign-in page with the reason for the failure."""
    context = {"sentence": sentence, "provider": settings.TREBUCHET_OIDC_NAME}
    return render(request, "accounts/sign_in_failed.html", context, status=status)
