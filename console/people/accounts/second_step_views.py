"""Pages of the second step: sign-in code, setup, new recovery codes and removal."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from console.accounts import devices, second_step, signed_in, throttle
from console.accounts.permissions import action, administrators_form, form, page
from console.accounts.second_step import Kind
from console.people.accounts.forms import LOCKED, CodeForm
from console.people.accounts.services import get_person, ms_of, removal_danger, remove_second_step
from console.people.audit.record import change, done, refused
from console.ui.danger import confirmation

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.http import HttpRequest, HttpResponse

BACKEND = "django.contrib.auth.backends.ModelBackend"


def checked_kind(request: HttpRequest, account: User, asked: CodeForm, action: str) -> Kind | None:
    """Return the kind of a form's code; count, log and report a wrong code."""
    if not asked.is_valid():
        return None
    attempt = throttle.second_step(account.pk)
    try:
        attempt.count()
    except throttle.RefusedError:
        asked.add_error(None, LOCKED)
        refused(request, action, account.get_username(), str(LOCKED))
        return None
    kind = second_step.kind_of(account, asked.cleaned_data["code"])
    if kind is None:
        sentence = _("This code is wrong or was already used.")
        asked.add_error("code", sentence)
        refused(request, action, account.get_username(), sentence)
        return None
    attempt.succeeded()
    return kind


@login_not_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def code(request: HttpRequest) -> HttpResponse:
    """Ask for a code after the password, and sign the person in."""
    pending = second_step.pending_sign_in(request)
    if pending is None:
        return redirect("accounts:sign-in")
    asked = CodeForm(request.POST or None)
    kind = None
    if request.method == "POST":
        kind = checked_kind(request, pending.account, asked, "account.sign-in")
    if kind is None:
        status = HTTPStatus.UNPROCESSABLE_ENTITY if asked.is_bound else HTTPStatus.OK
        return render(request, "accounts/code.html", {"form": asked}, status=status)
    del request.session[second_step.PENDING]
    login(request, pending.account, backend=BACKEND)
    response = redirect(pending.next_url)
    devices.remember(response, pending.account)
    signed_in.forget_ended()
    done(request, "account.sign-in", pending.account.get_username(), after={"with": kind.value})
    left = second_step.codes_left(pending.account)
    if kind is Kind.RECOVERY:
        messages.warning(
            request,
            _("You signed in with a recovery code. You have %(count)d left.") % {"count": left},
        )
    return response


@page
def state(request: HttpRequest) -> HttpResponse:
    """Show whether the current account has a second step."""
    assert request.user.is_authenticated
    return shown(request, CodeForm())


def shown(request: HttpRequest, asked: CodeForm, codes: list[str] | None = None) -> HttpResponse:
    account = request.user
    assert account.is_authenticated
    device = second_step.device_of(account)
    context = {
        "device": device,
        "since_ms": ms_of(device.created_at) if device is not None else None,
        "left": second_step.codes_left(account),
        "is_required": second_step.is_required(account),
        "form": asked,
        "codes": codes,
    }
    status = HTTPStatus.UNPROCESSABLE_ENTITY if asked.errors else HTTPStatus.OK
    return render(request, "accounts/second_step.html", context, status=status)


@form
def set_up(request: HttpRequest) -> HttpResponse:
    """Offer a key, and enable it once a code confirms that the app has it."""
    account = request.user
    assert account.is_authenticated
    if second_step.device_of(account) is not None:
        return redirect("accounts:second-step")
    key = second_step.offered_key(request)
    asked = CodeForm(request.POST or None)
    if request.method == "POST" and asked.is_valid():
        codes = second_step.set_up(account, key, asked.cleaned_data["code"])
        if codes is not None:
            del request.session[second_step.OFFERED_KEY]
            done(request, "account.second-step-on", account.get_username())
            # Other sessions started without a second step.
            signed_in.end_others(account, request.session.session_key)
            messages.success(
                request,
                _("Two-step authentication is on. You'll need a code each time you sign in."),
            )
            return shown(request, CodeForm(), codes)
        asked.add_error(
            "code", _("This code doesn't match the key. Enter the code that the app shows now.")
        )
    context = {"form": asked, "offer": second_step.offer_of(account, key)}
    status = HTTPStatus.UNPROCESSABLE_ENTITY if asked.is_bound else HTTPStatus.OK
    return render(request, "accounts/second_step_set_up.html", context, status=status)


@action
def renew_codes(request: HttpRequest) -> HttpResponse:
    """Create new recovery codes after a valid code."""
    account = request.user
    assert account.is_authenticated
    asked = CodeForm(request.POST)
    if checked_kind(request, account, asked, "account.recovery-codes") is None:
        return shown(request, asked)
    with change(request, "account.recovery-codes", account.get_username()):
        codes = second_step.new_recovery_codes(account)
    return shown(request, CodeForm(), codes)


@action
def turn_off(request: HttpRequest) -> HttpResponse:
    """Remove the second step from the current account after a valid code."""
    account = request.user
    assert account.is_authenticated
    asked = CodeForm(request.POST)
    if second_step.is_required(account):
        messages.error(request, _("Your role requires two-step authentication."))
        return redirect("accounts:second-step")
    if checked_kind(request, account, asked, "account.second-step-off") is None:
        return shown(request, asked)
    with change(request, "account.second-step-off", account.get_username()):
        second_step.turn_off(account)
    messages.success(
        request, _("Two-step authentication is off. Your password alone is enough to sign in.")
    )
    return redirect("accounts:second-step")


@administrators_form
def turn_off_for(request: HttpRequest, person: int) -> HttpResponse:
    """Remove the second step of an account whose app and recovery codes are lost."""
    account = get_person(person).account
    question = confirmation(request, removal_danger(account))
    if question is not None:
        return question
    messages.success(request, remove_second_step(request, account))
    return redirect("people:detail", person)
