"""Pages to create, edit, enable, disable and delete schedules."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.http import Http404
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext, gettext as _
from django.views.decorators.http import require_http_methods
from django_celery_beat.models import PeriodicTask

from console.accounts.permissions import (
    operators_action,
    operators_form,
    require_operator,
)
from console.accounts.roles import may_administer
from console.data.reports import catalog, health, schedules, visibility
from console.data.reports.forms import ParametersForm, ScheduleForm
from console.data.reports.models import QUEUED_SECONDS_MAX, ReportRun
from console.data.reports.presenting import shown_schedules
from console.people.audit.record import change
from console.ui.danger import Danger, Effect, ask, is_confirmed

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.data.reports.catalog import Report
    from console.data.reports.presenting import ShownSchedule


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


def new_schedule(report: Report) -> PeriodicTask:
    """Return an unsaved schedule for a report."""
    return PeriodicTask(
        task=schedules.SCHEDULED_TASK,
        kwargs=json.dumps({"report": report.name, "catch_up": True}),
        expire_seconds=QUEUED_SECONDS_MAX,
    )


def save_schedule(
    request: HttpRequest,
    schedule: PeriodicTask,
    form: ScheduleForm,
    parameters: ParametersForm | None,
) -> None:
    """Save valid forms, with an audit entry."""
    if parameters is not None:
        visibility.require_to_run(request, parameters.report, parameters.parameters())
    is_new = schedule.pk is None
    action = "schedule.create" if is_new else "schedule.update"
    name = form.cleaned_data["name"] if is_new else schedule.name
    before = None if is_new else audited(schedule)
    with change(request, action, name, before=before) as entry:
        save(schedule, form, parameters)
        entry.after = audited(schedule)


def set_enabled(request: HttpRequest, schedule: PeriodicTask, *, on: bool) -> None:
    """Enable or disable a schedule, with an audit entry."""
    before, after = {"enabled": schedule.enabled}, {"enabled": on}
    with change(request, "schedule.switch", schedule.name, before=before, after=after):
        schedule.enabled = on
        schedule.save()


def delete_schedule(request: HttpRequest, schedule: PeriodicTask) -> None:
    """Delete a schedule, with an audit entry."""
    with change(request, "schedule.delete", schedule.name, before=audited(schedule)):
        schedule.delete()


def danger_of(schedule: PeriodicTask) -> Danger:
    """Return the effects of deleting a schedule; nothing else is deleted with it."""
    shown = shown_schedule(schedule.pk)
    return Danger(
        title=_("Delete schedule %(name)s?") % {"name": schedule.name},
        text=_("The report no longer runs automatically. Results of earlier runs are kept."),
        effects=(
            Effect(
                _("Runs so far"),
                ReportRun.objects.filter(schedule=schedule).count(),
                shown.words if shown is not None else "",
            ),
        ),
        undo=_("This can't be undone. To pause the channel, turn it off instead."),
        action=_("Delete schedule"),
        keep=_("Cancel"),
        address=reverse("reports:schedule-delete", args=[schedule.pk]),
        back=reverse("reports:schedule", args=[schedule.pk]),
        name=schedule.name,
    )


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


def save(schedule: PeriodicTask, form: ScheduleForm, parameters: ParametersForm | None) -> None:
    """Store the forms' values."""
    given = form.cleaned_data
    arguments = schedules.arguments(schedule)
    if parameters is not None:
        arguments["parameters"] = parameters.parameters()
    arguments["catch_up"] = given["catch_up"]
    # People who can't choose channels leave them unchanged.
    arguments["channels"] = given.get("channels", schedules.channels_of(schedule))
    schedule.name = given["name"] or schedule.name
    schedule.enabled = given["enabled"]
    schedule.kwargs = json.dumps(arguments)
    if given["kind"] == "interval":
        schedules.set_interval(schedule, given["every"], given["period"])
    else:
        schedules.set_cron(schedule, given["cron"], given["timezone"])


def free_name(wanted: str) -> str:
    """Return the name, numbered if another schedule already has it."""
    taken = set(PeriodicTask.objects.values_list("name", flat=True))
    names = (wanted, *(f"{wanted} {number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def audited(schedule: PeriodicTask) -> dict[str, Any]:
    """Return the values of a schedule that the audit log compares before and after a change."""
    parameters = schedules.arguments(schedule).get("parameters") or {}
    return {**schedule_initial(schedule), "parameters": parameters}


def schedule_initial(schedule: PeriodicTask) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "enabled": schedule.enabled,
        "catch_up": schedules.arguments(schedule).get("catch_up", True),
        "channels": schedules.channels_of(schedule),
        **schedules.timing(schedule),
    }


def found_schedule(schedule_id: int) -> PeriodicTask:
    found: PeriodicTask = get_object_or_404(schedules.all_schedules(), pk=schedule_id)
    return found


def shown_schedule(schedule_id: int) -> ShownSchedule | None:
    return next((each for each in shown_schedules() if each.schedule.pk == schedule_id), None)
