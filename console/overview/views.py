"""Views of the overview."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.http import JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from console.demo.process import demo_process
from console.gateway.access import gateway
from console.gateway.answers import RuntimeInfo
from console.gateway.errors import GatewayError
from console.gateway.moment import now_ms
from console.overview.history import Sample, history
from console.overview.summary import BrokerRow, summarize, total

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

SINCE_DIGITS_MAX = 16


@require_safe
@never_cache
def index(request: HttpRequest) -> HttpResponse:
    """Show the whole page, with the state of now already in it."""
    context = {
        "summary": summarize(gateway()),
        "demo": demo_process.state(),
        "name_server_first": settings.TREBUCHET_NAMESRV[0],
    }
    return render(request, "overview/index.html", context)


@require_safe
@never_cache
def summary(request: HttpRequest) -> HttpResponse:
    """Show the part that refreshes itself."""
    return render(
        request, "overview/_summary.html", {"summary": summarize(gateway()), "is_refresh": True}
    )


@require_safe
@never_cache
def rates(request: HttpRequest) -> HttpResponse:
    """Answer the samples after `since` (ms): [[ms, put a second, get a second], ..]."""
    since = request.GET.get("since", "0")
    after_ms = (
        int(since) if since.isascii() and since.isdigit() and len(since) < SINCE_DIGITS_MAX else 0
    )
    problem = ""
    try:
        history.sample(now_ms(), take_sample)
    except GatewayError as error:
        problem = error.what
    return JsonResponse(
        {"samples": history.since(after_ms), "problem": problem, "readAtMs": now_ms()}
    )


def take_sample() -> Sample:
    answers = gateway().runtime()
    rows = [
        BrokerRow(info.node, info, None)
        for info in answers.values()
        if isinstance(info, RuntimeInfo)
    ]
    for answer in answers.values():
        if isinstance(answer, GatewayError):
            raise answer
    masters = [row for row in rows if row.node.is_master]
    return Sample(now_ms(), total(masters, "put_tps").value, total(rows, "get_tps").value)
