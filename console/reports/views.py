"""The report pages: list, run, schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import render
from django.views.decorators.http import require_safe

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@require_safe
def report_list(request: HttpRequest) -> HttpResponse:
    """Show the reports that ran, those that will."""
    return render(request, "reports/list.html")
