"""The Live page; its data comes over the WebSocket of `consumers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import JsonResponse
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.tracing.filters import WORD_CHARS_MAX

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

STAGE_LABELS = [
    ("stored", _("stored")),
    ("delivered", _("delivered")),
    ("acknowledged", _("acknowledged")),
]
TOPICS_OFFERED_MAX = 2_000


@require_safe
def river(request: HttpRequest) -> HttpResponse:
    """Show the river of messages; the address holds the filter, so that it can be shared."""
    asked = {
        name: request.GET.get(name, "")[:WORD_CHARS_MAX]
        for name in ("topic", "tag", "key", "stage")
    }
    return render(request, "tracing/river.html", {"filter": asked, "stages": STAGE_LABELS})


@require_safe
def topics(request: HttpRequest) -> JsonResponse:
    """Return the names the filter offers; none when no broker answers, typing works anyway."""
    try:
        names = sorted(gateway().topics())
    except GatewayError:
        names = []
    return JsonResponse({"topics": names[:TOPICS_OFFERED_MAX]})
