"""The palette's one view: entries as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import JsonResponse

from console.accounts.permissions import page
from console.accounts.rights import rights_on
from console.accounts.roles import may_administer
from console.frame import places_of
from console.lib.lists import search_text
from console.palette.entries import find

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@page
def entries(request: HttpRequest) -> HttpResponse:
    """Return the entries that match `q`."""
    found = find(
        search_text(request),
        places_of(request),
        rights=rights_on(request),
        may_administer=may_administer(request.user),
    )
    return JsonResponse({"entries": [entry._asdict() for entry in found]})
