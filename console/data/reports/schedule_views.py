"""Pages to create, edit, enable, disable and delete schedules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from django.contrib import messages
from django.http import Http404
from django.shortcuts import redirect, render
from django.utils.translation import gettext, gettext as _
from django.views.decorators.http import require_http_methods
from django_celery_beat.models import PeriodicTask

from console.accounts.permissions import (
    operators_action,
    operators_form,
    require_operator,
)
from console.accounts.roles import may_administer
from console.data.reports import catalog, health, schedules
from console.data.reports.forms import ParametersForm, ScheduleForm
from console.data.reports.scheduling import (
    danger_of,
    delete_schedule,
    found_schedule,
    new_schedule,
    save_schedule,
    schedule_initial,
    set_enabled,
    shown_schedule,
)
from console.ui.danger import ask, is_confirmed

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.data.reports.catalog import Report


@require_http_methods(["GET", "POST"])
def create(request: HttpRequest, report: str) -> HttpResponse:
    """Create a schedule for a report."""
    wanted = catalog.known_reports().get(report)
    if wanted is None:
        raise Http404(_("This report doesn't exist."))
    require_operator(request)
    schedule = new_schedule(wanted)
    posted = request.POST if request.method == "POST" else None
    start = {"name": free_name(gettext(wanted.title)), "enabled": True, "catch_up": True}
    form = ScheduleForm(
        posted,
        initial={**start, "kind": "cron", "cron": "0 6 * * *"},
        may_notify=may_administer(request.user),
    )
    parameters = ParametersForm(wanted, posted)
    if posted is not None and form.is_valid() and parameters.is_valid():
        save_schedule(request, schedule, form, parameters)
        messages.success(request, _("Schedule created."))
        return redirect("reports:list")
    return page(request, schedule, form, parameters, wanted)


@require_http_methods(["GET", "POST"])
def edit(request: HttpRequest, schedule_id: int) -> HttpResponse:
    """Show and change when a schedule runs."""
    schedule = found_schedule(schedule_id)
    arguments = schedules.arguments(schedule)
    report = catalog.known_reports().get(str(arguments.get("report", "")))
    posted = request.POST if request.method == "POST" else None
    form = ScheduleForm(
        posted,
        initial=schedule_initial(schedule),
        schedule_id=schedule.pk,
        may_notify=may_administer(request.user),
    )
    parameters = None
    if report is not None:
        initial = arguments.get("parameters") or {}
        parameters = ParametersForm(report, posted, initial=initial)
    if posted is not None:
        require_operator(request)
        if form.is_valid() and (parameters is None or parameters.is_valid()):
            save_schedule(request, schedule, form, parameters)
            messages.success(request, _("Schedule changed."))
            return redirect("reports:list")
    return page(request, schedule, form, parameters, report)


@operators_action
def switch(request: HttpRequest, schedule_id: int) -> HttpResponse:
    """Enable or disable a schedule."""
    schedule = found_schedule(schedule_id)
    set_enabled(request, schedule, on=request.POST.get("enabled") == "on")
    messages.success(
        request,
        _("Schedule turned on.") if schedule.enabled else _("Schedule turned off."),
    )
    return redirect("reports:list")


@operators_form
def delete(request: HttpRequest, schedule_id: int) -> HttpResponse:
    """Delete a schedule, keeping its runs."""
    schedule = found_schedule(schedule_id)
    danger = danger_of(schedule)
    if request.method != "POST":
        return ask(request, danger)
    if not is_confirmed(request, danger):
        problem = _("The name you typed doesn't match, so nothing was deleted.")
        return ask(request, replace(danger, problem=problem))
    delete_schedule(request, schedule)
    messages.success(request, _("Schedule deleted. Results of its runs are kept."))
    return redirect("reports:list")


def page(
    request: HttpRequest,
    schedule: PeriodicTask,
    form: ScheduleForm,
    parameters: ParametersForm | None,
    report: Report | None,
) -> HttpResponse:
    return render(
        request,
        "reports/schedule.html",
        {
            "form": form,
            "parameters": parameters,
            "schedule": schedule,
            "report": report,
            "shown": None if schedule.pk is None else shown_schedule(schedule.pk),
            "problems": [] if report is not None else health.problems(),
        },
        status=200 if request.method == "GET" else 422,
    )


def free_name(wanted: str) -> str:
    """Return the name, numbered if another schedule already has it."""
    taken = set(PeriodicTask.objects.values_list("name", flat=True))
    names = (wanted, *(f"{wanted} {number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)
