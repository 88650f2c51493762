"""The schedule page of a saved query: timing, results and notification channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from console.accounts.roles import may_administer
from console.data.reports import schedules
from console.data.reports.forms import ScheduleForm
from console.data.reports.presenting import milliseconds
from console.data.sql.access import guarded, sql_action
from console.data.sql.scheduled import (
    delete_schedule,
    initial_of,
    new_schedule,
    save_schedule,
    schedule_of,
)
from console.data.sql.services import own_query

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


RUNS_SHOWN = 30


@guarded
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def schedule(request: HttpRequest, pk: int) -> HttpResponse:
    """Show and change when a saved query runs."""
    query = own_query(request, pk)
    found = schedule_of(query)
    given = found or new_schedule(query)
    posted = request.POST if request.method == "POST" else None
    # The schedule has the query's name, so the form has no field for it.
    form = ScheduleForm(
        posted,
        initial=initial_of(found),
        schedule_id=given.pk or 0,
        may_notify=may_administer(request.user),
    )
    if posted is not None and form.is_valid():
        save_schedule(request, query, given, form)
        messages.success(request, _("Schedule of %(name)s saved.") % {"name": query.name})
        return redirect("sql:schedule", pk=query.pk)
    now = timezone.now()
    context = {
        "query": query,
        "form": form,
        "schedule": found,
        "words": "" if found is None else schedules.in_words(found),
        "next_ms": []
        if found is None
        else [milliseconds(e) for e in schedules.next_runs(found, now)],
        "runs": query.runs.all()[:RUNS_SHOWN],
    }
    return render(request, "sql/schedule.html", context, status=200 if posted is None else 422)


@sql_action
def end_schedule(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a saved query's schedule."""
    query = own_query(request, pk)
    messages.success(request, delete_schedule(request, query))
    return redirect("sql:schedule", pk=query.pk)
