"""The page about the API: its operations, one's tokens; and the schema."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import messages
from django.http import JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.permissions import form, page
from console.accounts.roles import may_administer
from console.accounts.scopes import AREAS
from console.api.forms import TokenForm
from console.api.models import ApiToken
from console.api.operations import OPERATIONS
from console.api.schema import openapi
from console.api.tokens import TOKENS_MAX, made_token
from console.audit.record import change
from console.gateway.moment import now_ms
from console.ui.danger import Danger, unanswered

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse


def user_of(request: HttpRequest) -> User:
    user = request.user
    assert user.is_authenticated  # the middleware lets nobody else in
    return user


def visible_to(user: User) -> QuerySet[ApiToken]:
    """Return one's own tokens; administrators see to everybody's."""
    tokens = ApiToken.objects.select_related("owner")
    return tokens if may_administer(user) else tokens.filter(owner=user)


@page
def index(request: HttpRequest) -> HttpResponse:
    """Show what programs can do, and the tokens that let them."""
    user = user_of(request)
    context = {
        "tokens": visible_to(user),
        "now": now_ms(),
        "areas": shown_operations(),
        "count": len(OPERATIONS),
        "address": settings.TREBUCHET_URL,
        "limit": settings.TREBUCHET_API_REQUESTS_A_MINUTE,
    }
    return render(request, "api/index.html", context)


def shown_operations() -> list[dict[str, Any]]:
    """Return the operations of each area with what the schema says of them."""
    paths = openapi()["paths"]
    areas = list(AREAS)
    ordered = sorted(
        OPERATIONS.values(), key=lambda each: (areas.index(each.area), each.path, each.method)
    )
    found = []
    for area, operations in groupby(ordered, key=lambda each: each.area):
        rows = []
        for each in operations:
            described = paths[each.shown_path][each.method.lower()]
            content = described.get("requestBody", {}).get("content", {})
            body = content.get("application/json", {}).get("schema", {})
            rows.append(
                {
                    "operation": each,
                    "summary": described["summary"],
                    "parameters": described.get("parameters", []),
                    "fields": [
                        {"name": name, **field}
                        for name, field in body.get("properties", {}).items()
                    ],
                }
            )
        found.append({"label": AREAS[area], "name": area, "rows": rows})
    return found


@page
def schema(request: HttpRequest) -> HttpResponse:
    """Answer the schema in OpenAPI 3.1."""
    return JsonResponse(openapi(), json_dumps_params={"ensure_ascii": False})


@form
def create_token(request: HttpRequest) -> HttpResponse:
    """Ask what a token may do; then show it, this once."""
    user = user_of(request)
    if ApiToken.objects.filter(owner=user).count() >= TOKENS_MAX:
        said = _("You have %(count)d tokens already; delete one first.")
        messages.error(request, said % {"count": TOKENS_MAX})
        return redirect("api:index")
    wanted = TokenForm(user, request.POST if request.method == "POST" else None)
    if request.method != "POST" or not wanted.is_valid():
        status = 422 if wanted.is_bound else 200
        return render(request, "api/new_token.html", {"form": wanted}, status=status)
    data = wanted.cleaned_data
    after = {"scopes": data["scopes"], "days": data["days"]}
    with change(request, "api-token.create", data["name"], after=after):
        token, text = made_token(user, data["name"], data["scopes"], data["days"], now_ms())
    context = {"token": token, "text": text, "address": settings.TREBUCHET_URL}
    return render(request, "api/token.html", context)


def danger_of(token: ApiToken) -> Danger:
    """Return what goes with a token: its program's way in."""
    return Danger(
        title=_("Delete token %(name)s?") % {"name": token.name},
        text=_("The program that has it is refused from now on."),
        undo=_("This cannot be undone: a new token has another text."),
        action=_("Delete token"),
        keep=_("Keep it"),
        address=reverse("api:token-delete", args=[token.pk]),
        back=reverse("api:index"),
    )


@form
def delete_token(request: HttpRequest, pk: int) -> HttpResponse:
    token = get_object_or_404(visible_to(user_of(request)), pk=pk)
    question = unanswered(request, danger_of(token))
    if question is not None:
        return question
    before = {"owner": token.owner.get_username(), "scopes": token.scopes}
    with change(request, "api-token.delete", token.name, before=before):
        token.delete()
    messages.success(request, _("The token %(name)s opens nothing any more.") % {"name": token})
    return redirect("api:index")
