"""GET /metrics."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from broker_core.metrics.exposition import CONTENT_TYPE
from console.gateway.shared import Shared
from console.lib.moment import now_ms
from console.observe.scraping import access
from console.observe.scraping.page import text

KEPT_MS = 2_000
"""Requests within this time get the same page, so frequent scrapes are cheap."""
shared_page: Shared[bytes] = Shared(KEPT_MS)


@login_not_required
@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics, if the settings allow the request."""
    mode = settings.TREBUCHET_METRICS
    if mode == access.OFF:
        raise Http404
    if mode == access.LOOPBACK and not access.is_of_this_machine(request.META):
        return refused(
            403, "TREBUCHET_METRICS=loopback: only requests from this machine are allowed.\n"
        )
    if mode == access.TOKEN and not access.has_token(
        request.headers.get("Authorization", ""), settings.TREBUCHET_METRICS_TOKEN
    ):
        answer = refused(401, "Send Authorization: Bearer and TREBUCHET_METRICS_TOKEN.\n")
        answer["WWW-Authenticate"] = "Bearer"
        return answer
    now = now_ms()
    return HttpResponse(shared_page.get("", now, lambda: text(now)), content_type=CONTENT_TYPE)


def refused(status: int, sentence: str) -> HttpResponse:
    return HttpResponse(sentence, status=status, content_type="text/plain; charset=utf-8")
