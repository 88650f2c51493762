"""The API page with its operations and tokens, and the schema."""

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
from console.api.tokens import TOKENS_MAX, new_token
from console.lib.moment import now_ms
from console.people.audit.record import change
from console.ui.danger import Danger, confirmation

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse


def user_of(request: HttpRequest) -> User:
    user = request.user
    assert user.is_authenticated  # ensured by the middleware
    return user


def visible_to(user: User) -> QuerySet[ApiToken]:
    """Return the user's own tokens, or everyone's for an administrator."""
    tokens = ApiToken.objects.select_related("owner")
    return tokens if may_administer(user) else tokens.filter(owner=user)


@page
def index(request: HttpRequest) -> HttpResponse:
    """Show the API's operations and the tokens."""
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
    """Return each area's operations with their description in the schema."""
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
    """Return the OpenAPI 3.1 schema."""
    return JsonResponse(openapi(), json_dumps_params={"ensure_ascii": False})


@form
def create_token(request: HttpRequest) -> HttpResponse:
    """Ask for a token's scopes, then show the new token once."""
    user = user_of(request)
    if ApiToken.objects.filter(owner=user).count() >= TOKENS_MAX:
        sentence = _("You already have %(count)d tokens. Delete one first.")
        messages.error(request, sentence % {"count": TOKENS_MAX})
        return redirect("api:index")
    wanted = TokenForm(user, request.POST if request.method == "POST" else None)
    if request.method != "POST" or not wanted.is_valid():
        status = 422 if wanted.is_bound else 200
        return render(request, "api/new_token.html", {"form": wanted}, status=status)
    data = wanted.cleaned_data
    after = {"scopes": data["scopes"], "days": data["days"]}
    with change(request, "api-token.create", data["name"], after=after):
        token, text = new_token(user, data["name"], data["scopes"], data["days"], now_ms())
    context = {"token": token, "text": text, "address": settings.TREBUCHET_URL}
    return render(request, "api/token.html", context)


def danger_of(token: ApiToken) -> Danger:
    """Return the confirmation for deleting a token."""
    return Danger(
        title=_("Delete token %(name)s?") % {"name": token.name},
        text=_("Requests from the program that uses it will be rejected."),
        undo=_("This can't be undone. A new token has a different value."),
        action=_("Delete token"),
        keep=_("Cancel"),
        address=reverse("api:token-delete", args=[token.pk]),
        back=reverse("api:index"),
    )


@form
def delete_token(request: HttpRequest, pk: int) -> HttpResponse:
    token = get_object_or_404(visible_to(user_of(request)), pk=pk)
    question = confirmation(request, danger_of(token))
    if question is not None:
        return question
    before = {"owner": token.owner.get_username(), "scopes": token.scopes}
    with change(request, "api-token.delete", token.name, before=before):
        token.delete()
    messages.success(request, _("Token %(name)s deleted. It no longer works.") % {"name": token})
    return redirect("api:index")
