"""The Live page; its data comes over the WebSocket in `consumers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import JsonResponse
from django.shortcuts import render

from console.accounts.permissions import page
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.messages.tracing.filters import STAGES, WORD_CHARS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.http import HttpRequest, HttpResponse

NAMES = (
    *("topic", "group", "tag", "key", "client", "stage", "property"),
    *("latency", "total", "took", "sample"),
)
SCRIPTS = [f"tracing/{name}.js" for name in ("strip", "rows", "filter_line", "recording", "live")]
NAMES_OFFERED_MAX = 2_000


@page
def river(request: HttpRequest) -> HttpResponse:
    """Show messages live; the URL contains the filter, so that people can share it."""
    asked = {name: request.GET.get(name, "")[:WORD_CHARS_MAX] for name in NAMES}
    context = {"line": line_of(asked), "stages": STAGES, "scripts": SCRIPTS}
    return render(request, "tracing/river.html", context)


def line_of(asked: Mapping[str, str]) -> str:
    """Return a filter as people write it, `topic:orders latency:100 errors`."""
    words = {name: text.strip() for name, text in asked.items() if text.strip()}
    return " ".join(
        "errors"
        if (name, text) == ("stage", "errors")
        else f'{name}:"{text}"'
        if any(sign.isspace() for sign in text)
        else f"{name}:{text}"
        for name, text in words.items()
    )


@page
def topics(request: HttpRequest) -> JsonResponse:
    """Return the topics and groups that the filter suggests; empty while no broker responds."""
    try:
        names, groups = sorted(gateway().topics.all()), sorted(gateway().groups.all())
    except GatewayError:
        names, groups = [], []
    return JsonResponse({"topics": names[:NAMES_OFFERED_MAX], "groups": groups[:NAMES_OFFERED_MAX]})
