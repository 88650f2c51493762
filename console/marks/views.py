"""The page of marks and their tokens, and the address where programs set marks."""

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
from console.audit.record import change, done_by_token, refused
from console.gateway.moment import now_ms
from console.history.tiers import HOUR_MS
from console.marks.models import NAME_CHARACTERS_MAX, TOKENS_MAX, Mark, Token
from console.marks.setting import MarkError, TooManyError, made_token, set_mark, token_of
from console.ui.danger import Danger, Effect, unanswered
from console.ui.lists import stored_page_of

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    # At run time Django's class takes no parameter.
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
    """Set a mark for now."""
    try:
        added(request, request.POST.get("text", ""))
    except MarkError as error:
        messages.error(request, str(error))
    return redirect("marks:list")


def added(request: HttpRequest, text: object, at_ms: object = None) -> Mark:
    """Set a mark under an audit entry.

    Raises:
        MarkError: the text or the time is none.
    """
    with change(request, "mark.add", "marks") as entry:
        mark = set_mark(text, at_ms, now_ms(), by=request.user.get_username())
        entry.after = {"id": mark.pk, "text": mark.text}
    return mark


def mark_danger_of(mark: Mark) -> Danger:
    """Return what goes with a mark: its line on each chart."""
    return Danger(
        title=_("Delete this mark?"),
        text=mark.text,
        undo=_("This cannot be undone: a mark set anew stands at the time of setting it."),
        action=_("Delete mark"),
        keep=_("Keep it"),
        address=reverse("marks:delete", args=[mark.pk]),
        back=reverse("marks:list"),
    )


@operators_form
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    mark = get_object_or_404(Mark, pk=pk)
    question = unanswered(request, mark_danger_of(mark))
    if question is not None:
        return question
    deleted(request, mark)
    messages.success(request, _("The mark is deleted."))
    return redirect("marks:list")


def deleted(request: HttpRequest, mark: Mark) -> None:
    """Delete a mark under an audit entry."""
    before = {"text": mark.text, "at_ms": mark.at_ms, "by": mark.by}
    with change(request, "mark.delete", "marks", before=before):
        mark.delete()


@administrators_action
def create_token(request: HttpRequest) -> HttpResponse:
    """Make a token and show it, this once."""
    if Token.objects.count() >= TOKENS_MAX:
        messages.error(request, _("There are %(count)d tokens already.") % {"count": TOKENS_MAX})
        return redirect("marks:list")
    form = TokenForm(request.POST)
    if not form.is_valid():
        for problems in form.errors.values():
            messages.error(request, " ".join(str(each) for each in problems))
        return redirect("marks:list")
    name = form.cleaned_data["name"]
    with change(request, "mark-token.create", name):
        token = made_token(name, request.user.get_username(), now_ms())
    address = settings.TREBUCHET_URL + reverse("marks:api")
    context = {"name": name, "token": token, "address": address}
    return render(request, "marks/token.html", context)


def token_danger_of(token: Token) -> Danger:
    """Return what goes with a token: its program's way to set marks."""
    return Danger(
        title=_("Delete token %(name)s?") % {"name": token.name},
        text=_("The program that has it sets no mark any more; its deployments do not fail by it."),
        effects=(Effect(_("Marks that it has set, and that stay"), token.marks.count()),),
        undo=_("This cannot be undone: a new token has another text."),
        action=_("Delete token"),
        keep=_("Keep it"),
        address=reverse("marks:token-delete", args=[token.pk]),
        back=reverse("marks:list"),
        name=token.name,
    )


@administrators_form
def delete_token(request: HttpRequest, pk: int) -> HttpResponse:
    token = get_object_or_404(Token, pk=pk)
    question = unanswered(request, token_danger_of(token))
    if question is not None:
        return question
    with change(request, "mark-token.delete", token.name):
        token.delete()
    messages.success(
        request,
        _("The token %(name)s sets no more marks; those it has set stay.") % {"name": token},
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
        refused(request, "mark.refused", "marks", _("The token is none of this console."))
        answer = problem(401, _("Send Authorization: Bearer and a token of this console's marks."))
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
