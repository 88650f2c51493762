"""Report schedules: create, change, switch and delete them, for the pages and the API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _
from django_celery_beat.models import PeriodicTask

from console.data.reports import schedules, visibility
from console.data.reports.models import QUEUED_SECONDS_MAX, ReportRun
from console.data.reports.presenting import ShownSchedule, shown_schedules
from console.people.audit.record import change
from console.ui.danger import Danger, Effect

if TYPE_CHECKING:
    from django.http import HttpRequest

    from console.data.reports.catalog import Report
    from console.data.reports.forms import ParametersForm, ScheduleForm


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


def save(schedule: PeriodicTask, form: ScheduleForm, parameters: ParametersForm | None) -> None:
    """Store the forms' values."""
    schedule.name = form.cleaned_data["name"] or schedule.name
    more = {} if parameters is None else {"parameters": parameters.parameters()}
    schedules.set_values(schedule, form.cleaned_data, more)


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
