"""The page of marks and their tokens, and the endpoint for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from console.accounts.permissions import (
    administrators_action,
    administrators_form,
    operators_action,
    operators_form,
    page,
)
from console.accounts.roles import may_administer
from console.lib.lists import stored_page_of
from console.lib.moment import now_ms
from console.observe.history.tiers import HOUR_MS
from console.observe.marks.models import NAME_CHARACTERS_MAX, TOKENS_MAX, Mark, Token
from console.observe.marks.setting import (
    MarkError,
    TooManyError,
    add_mark,
    delete_mark,
    mark_danger_of,
    new_token,
    set_mark,
    token_of,
)
from console.people.audit.record import change, done_by_token, refused
from console.ui.danger import Danger, Effect, confirmation

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    # Django's class isn't generic at run time.
    TokenModelForm = forms.ModelForm[Token]
else:
    TokenModelForm = forms.ModelForm


class TokenForm(TokenModelForm):
    """The name of a new token."""

    class Meta:
        model = Token
        fields = ["name"]
        labels = {"name": gettext_lazy("Name")}
        widgets = {"name": forms.TextInput(attrs={"maxlength": NAME_CHARACTERS_MAX})}


@page
def listing(request: HttpRequest) -> HttpResponse:
    shown = stored_page_of(request, Mark.objects.all())
    context = {
        "page": shown,
        "tokens": Token.objects.all() if may_administer(request.user) else [],
        "address": settings.TREBUCHET_URL + reverse("marks:api"),
    }
    return render(request, "marks/list.html", context)


@operators_action
def add(request: HttpRequest) -> HttpResponse:
    """Set a mark at the current time."""
    try:
        add_mark(request, request.POST.get("text", ""))
    except MarkError as error:
        messages.error(request, str(error))
    return redirect("marks:list")


@operators_form
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    mark = get_object_or_404(Mark, pk=pk)
    question = confirmation(request, mark_danger_of(mark))
    if question is not None:
        return question
    delete_mark(request, mark)
    messages.success(request, _("Mark deleted."))
    return redirect("marks:list")


@administrators_action
def create_token(request: HttpRequest) -> HttpResponse:
    """Create a token and show it, this once."""
    if Token.objects.count() >= TOKENS_MAX:
        messages.error(request, _("You already have %(count)d tokens.") % {"count": TOKENS_MAX})
        return redirect("marks:list")
    form = TokenForm(request.POST)
    if not form.is_valid():
        for problems in form.errors.values():
            messages.error(request, " ".join(str(each) for each in problems))
        return redirect("marks:list")
    name = form.cleaned_data["name"]
    with change(request, "mark-token.create", name):
        token = new_token(name, request.user.get_username(), now_ms())
    address = settings.TREBUCHET_URL + reverse("marks:api")
    context = {"name": name, "token": token, "address": address}
    return render(request, "marks/token.html", context)


def token_danger_of(token: Token) -> Danger:
    """Return the effects of deleting a token: its program can't set marks."""
    return Danger(
        title=_("Delete token %(name)s?") % {"name": token.name},
        text=_(
            "The program that uses this token can no longer add marks. Its deployments won't "
            "fail because of it."
        ),
        effects=(Effect(_("Marks added with it, which are kept"), token.marks.count()),),
        undo=_("This can't be undone. A new token has a different value."),
        action=_("Delete token"),
        keep=_("Cancel"),
        address=reverse("marks:token-delete", args=[token.pk]),
        back=reverse("marks:list"),
        name=token.name,
    )


@administrators_form
def delete_token(request: HttpRequest, pk: int) -> HttpResponse:
    token = get_object_or_404(Token, pk=pk)
    question = confirmation(request, token_danger_of(token))
    if question is not None:
        return question
    with change(request, "mark-token.delete", token.name):
        token.delete()
    messages.success(
        request,
        _("Token %(name)s can no longer add marks. Its existing marks are kept.") % {"name": token},
    )
    return redirect("marks:list")


@login_not_required
@csrf_exempt
@require_POST
@never_cache
def api(request: HttpRequest) -> JsonResponse:
    """Set a mark: {"text": …, "at_ms": …}, with `Authorization: Bearer TOKEN`."""
    token = token_of(request.headers.get("Authorization", ""))
    if token is None:
        refused(request, "mark.refused", "marks", _("This token doesn't belong to this console."))
        answer = problem(
            401, _("Send an Authorization header with Bearer and a marks token of this console.")
        )
        answer["WWW-Authenticate"] = "Bearer"
        return answer
    try:
        asked = json.loads(request.body)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        return problem(400, _('Send a JSON object: {"text": "shop 1.4.2"}.'))
    try:
        mark = set_mark(asked.get("text"), asked.get("at_ms"), now_ms(), by=token.name, token=token)
    except TooManyError as error:
        answer = problem(429, str(error))
        answer["Retry-After"] = str(HOUR_MS // 1_000)
        return answer
    except MarkError as error:
        return problem(400, str(error))
    done_by_token(request, "mark.add", "marks", token.name, after={"id": mark.pk})
    return JsonResponse({"id": mark.pk, "at_ms": mark.at_ms, "text": mark.text}, status=201)


def problem(status: int, text: str) -> JsonResponse:
    return JsonResponse({"error": text}, status=status)
