"""The schedule page of a saved query: timing, results and notification channels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

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
from console.data.sql.scheduled import new_schedule, schedule_of, unschedule
from console.data.sql.views import own_query
from console.people.audit.record import change

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from django_celery_beat.models import PeriodicTask

    from console.data.sql.models import SavedQuery

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


def save_schedule(
    request: HttpRequest, query: SavedQuery, given: PeriodicTask, form: ScheduleForm
) -> None:
    """Save a query's schedule from the form."""
    found = schedule_of(query)
    before = None if found is None else initial_of(found)
    with change(request, "sql.schedule", query.name, before=before) as entry:
        save(given, form)
        entry.after = initial_of(given)


def delete_schedule(request: HttpRequest, query: SavedQuery) -> str:
    """Delete a query's schedule; return a sentence about it."""
    found = schedule_of(query)
    before = None if found is None else initial_of(found)
    with change(request, "sql.unschedule", query.name, before=before):
        unschedule(query)
    return _("%(name)s is no longer scheduled.") % {"name": query.name}


def initial_of(found: PeriodicTask | None) -> dict[str, Any]:
    """Return the form's initial values."""
    if found is None:
        zone = timezone.get_current_timezone_name()
        known: dict[str, Any] = {"enabled": True, "catch_up": True, "kind": "interval"}
        known |= {"every": 1, "period": "hours", "cron": "0 6 * * *", "timezone": zone}
        return {**known, "channels": []}
    return {
        "enabled": found.enabled,
        "catch_up": schedules.arguments(found).get("catch_up", True),
        "channels": schedules.channels_of(found),
        **schedules.timing(found),
    }


def save(found: PeriodicTask, form: ScheduleForm) -> None:
    """Store the form's values."""
    given = form.cleaned_data
    arguments = schedules.arguments(found)
    # People who can't choose channels leave them unchanged.
    channels = given.get("channels", schedules.channels_of(found))
    changed = {"catch_up": given["catch_up"], "channels": channels}
    found.kwargs = json.dumps({**arguments, **changed})
    found.enabled = given["enabled"]
    if given["kind"] == "interval":
        schedules.set_interval(found, given["every"], given["period"])
    else:
        schedules.set_cron(found, given["cron"], given["timezone"])
