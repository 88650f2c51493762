"""The page of a message's history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import Http404, HttpResponse
from django.shortcuts import render

from console.accounts.permissions import page
from console.lib.moment import now_ms
from console.lib.stored import BrokerQueue
from console.messages.browse.services import stored_at
from console.messages.family.clients import comparisons
from console.messages.family.otlp import json_lines_of, otlp_of
from console.messages.family.services import family_of
from console.messages.family.steps import CERTAINTIES
from console.messages.family.waterfall import waterfall_of

if TYPE_CHECKING:
    from django.http import HttpRequest


@page
def family(
    request: HttpRequest, broker_name: str, queue_id: int, offset: int, topic: str
) -> HttpResponse:
    """Show the history of a message from any of its records."""
    asked = stored_at(topic, BrokerQueue(broker_name, queue_id), offset)
    found = family_of(asked)
    context = {
        "asked": asked,
        "message": found.root,
        "relatives": found.relatives,
        "waterfall": waterfall_of(found.steps),
        "comparisons": comparisons(found.relatives),
        "certainties": CERTAINTIES.items(),
        "read_at_ms": now_ms(),
    }
    return render(request, "family/family.html", context)


EXPORTS = {"otlp": "application/json", "jsonl": "application/x-ndjson"}


@page
def export(
    request: HttpRequest, kind: str, broker_name: str, queue_id: int, offset: int, topic: str
) -> HttpResponse:
    """Return the history as OTLP JSON or as JSON lines, without message bodies."""
    if kind not in EXPORTS:
        raise Http404
    found = family_of(stored_at(topic, BrokerQueue(broker_name, queue_id), offset))
    text = otlp_of(found.relatives, found.steps) if kind == "otlp" else json_lines_of(found.steps)
    answer = HttpResponse(text, content_type=EXPORTS[kind])
    suffix = "json" if kind == "otlp" else kind
    answer["Content-Disposition"] = f'attachment; filename="family-{queue_id}-{offset}.{suffix}"'
    return answer
