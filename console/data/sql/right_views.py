"""The page of SQL access rights: who can query which topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.contrib.auth.models import Group
from django.shortcuts import redirect, render

from console.accounts.permissions import administrators_action, administrators_form
from console.data.sql.forms import RightForm
from console.data.sql.rights import (
    every_right,
    get_grantee,
    grant_right,
    key_of,
    possible_grantees,
    revoke_right,
)

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@administrators_form
def rights(request: HttpRequest) -> HttpResponse:
    """Show who can query the lake, and grant access."""
    is_post = request.method == "POST"
    form = RightForm(
        request.POST if is_post else None,
        grantees=possible_grantees(),
        initial={"scope": "some", "topics": ""},
    )
    if is_post and form.is_valid():
        messages.success(request, grant_right(request, form))
        return redirect("sql:rights")
    rows = [
        {
            "key": key_of(grantee),
            "name": str(grantee),
            "is_group": isinstance(grantee, Group),
            "topics": topics,
        }
        for grantee, topics in every_right()
    ]
    context = {"form": form, "rows": rows}
    return render(request, "sql/rights.html", context, status=422 if is_post else 200)


@administrators_action
def revoke(request: HttpRequest) -> HttpResponse:
    """Revoke a person's or group's permission."""
    messages.success(request, revoke_right(request, get_grantee(request.POST.get("grantee", ""))))
    return redirect("sql:rights")
