"""The Live page; its data comes over the WebSocket of `consumers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import render
from django.views.decorators.http import require_safe

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@require_safe
def river(request: HttpRequest) -> HttpResponse:
    """Show the river of messages."""
    return render(request, "tracing/river.html")
