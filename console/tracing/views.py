"""The Live page; its data comes over the WebSocket of `consumers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import JsonResponse
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _

from console.accounts.permissions import page
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.tracing.filters import WORD_CHARS_MAX

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

STAGE_LABELS = [
    ("stored", _("stored")),
    ("delivered", _("delivered")),
    ("acknowledged", _("acknowledged")),
    ("given_back", _("given back")),
    ("dead", _("dead letter")),
    ("refused", _("refused")),
    ("errors", _("errors only")),
]
RARER_FIELDS = ("client", "property", "latency", "sample")
FIELDS = ("topic", "group", "tag", "key", "stage", *RARER_FIELDS)
SAMPLES = [10, 100, 1_000, 10_000]
TOPICS_OFFERED_MAX = 2_000


@page
def river(request: HttpRequest) -> HttpResponse:
    """Show the river of messages; its address holds the filter, so that people can share it."""
    asked = {name: request.GET.get(name, "")[:WORD_CHARS_MAX] for name in FIELDS}
    return render(
        request,
        "tracing/river.html",
        {
            "filter": asked,
            "stages": STAGE_LABELS,
            "samples": SAMPLES,
            "is_narrow": any(asked[name] for name in RARER_FIELDS),
        },
    )


@page
def topics(request: HttpRequest) -> JsonResponse:
    """Return the topics that the filter offers; none while no broker answers."""
    try:
        names = sorted(gateway().topics.all())
    except GatewayError:
        names = []
    return JsonResponse({"topics": names[:TOPICS_OFFERED_MAX]})
