"""The report pages: the list, a run, a schedule."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import redis
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from kombu.exceptions import OperationalError

from console.reports import catalog, health, schedules, traffic
from console.reports.forms import ScheduleForm, StartForm
from console.reports.models import (
    QUEUED_SECONDS_MAX,
    SENTENCE_CHARS_MAX,
    WORKING,
    ReportRun,
    RunState,
)
from console.reports.presenting import ShownRun, ShownSchedule, shown_schedules
from console.reports.tasks import run_report

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from django_celery_beat.models import PeriodicTask

RUNS_SHOWN = 50
ROWS_SHOWN = 200
TOPICS_SHOWN = 100


def require_staff(request: HttpRequest) -> None:
    """Refuse readers: starting work and changing schedules is for administrators."""
    if not request.user.is_staff:
        raise PermissionDenied(_("Only administrators may do this."))


@require_safe
def report_list(request: HttpRequest) -> HttpResponse:
    """Show the reports: what runs next, what ran."""
    return render(
        request,
        "reports/list.html",
        {
            "problems": health.problems(),
            "schedules": shown_schedules(),
            "runs": recent_runs(),
            "form": StartForm(),
            "reports": catalog.REPORTS.values(),
        },
    )


@require_safe
def runs(request: HttpRequest) -> HttpResponse:
    """Show the table of runs alone; the page asks for it while something runs."""
    return render(request, "reports/_runs.html", {"runs": recent_runs()})


@require_safe
def health_banners(request: HttpRequest) -> HttpResponse:
    """Show what keeps reports from running, alone."""
    return render(request, "reports/_health.html", {"problems": health.problems()})


def recent_runs() -> list[ShownRun]:
    found = ReportRun.objects.select_related("schedule", "requested_by").defer("log_tail")
    return [ShownRun(run) for run in found[:RUNS_SHOWN]]


@require_POST
def start(request: HttpRequest) -> HttpResponse:
    """Put a run in the queue and show it, or say why that is not possible."""
    require_staff(request)
    form = StartForm(request.POST)
    if not form.is_valid():
        for problem in form.errors.values():
            messages.error(request, " ".join(str(each) for each in problem))
        return redirect("reports:list")
    blocked = next((problem for problem in health.problems() if problem.blocks), None)
    if blocked is not None:
        messages.error(request, blocked.sentence)
        return redirect("reports:list")
    run = ReportRun.objects.create(
        report=form.cleaned_data["report"],
        parameters=form.parameters(),
        requested_by_id=request.user.pk,
    )
    try:
        # No retries: a page must not wait for a Redis that is gone.
        run_report.apply_async(args=(run.pk,), expires=QUEUED_SECONDS_MAX, retry=False)
    except (OperationalError, redis.RedisError, OSError) as error:
        run.move(
            RunState.FAILED,
            among=(RunState.QUEUED,),
            finished_at=timezone.now(),
            failure=(f"The report could not be put in the queue: {error}")[:SENTENCE_CHARS_MAX],
        )
    return redirect("reports:run", run_id=run.pk)


@require_safe
def run_page(request: HttpRequest, run_id: int) -> HttpResponse:
    """Show one run: how far it is, or what came out."""
    run = found_run(run_id)
    context: dict[str, Any] = {
        "shown": ShownRun(run),
        "problems": health.problems() if run.is_active else [],
        "form": StartForm(initial={"report": run.report, **run.parameters}),
    }
    if run.result is not None:
        rows = run.rows
        topics = run.result.get("topics", [])
        context |= {
            "result": run.result,
            "topics": topics[:TOPICS_SHOWN],
            "topics_left_out": max(0, int(run.result.get("topicCount", 0)) - TOPICS_SHOWN),
            "rows": rows[-ROWS_SHOWN:][::-1],
            "row_count": run.result_rows,
            "rows_kept": len(rows),
            "rows_left_out": max(0, len(rows) - ROWS_SHOWN),
        }
    return render(request, "reports/run.html", context)


@require_safe
def run_progress(request: HttpRequest, run_id: int) -> HttpResponse:
    """Show the progress alone; once the run has ended, make the page load its result."""
    run = found_run(run_id)
    response = render(
        request,
        "reports/_progress.html",
        {"shown": ShownRun(run), "problems": health.problems() if run.is_active else []},
    )
    if not run.is_active:
        response["HX-Refresh"] = "true"
    return response


@require_safe
def run_chart(request: HttpRequest, run_id: int) -> HttpResponse:
    """Return the numbers of the chart."""
    result = found_run(run_id).result
    if result is None:
        raise Http404(_("This run has no result."))
    return JsonResponse(result.get("chart", {}))


@require_safe
def run_csv(request: HttpRequest, run_id: int) -> HttpResponseBase:
    """Return the rows that are kept as CSV."""
    run = found_run(run_id)
    if run.result is None:
        raise Http404(_("This run has no result."))
    response = StreamingHttpResponse(traffic.csv_lines(run.rows), content_type="text/csv")
    response["Content-Disposition"] = f'attachment; filename="{run.report}-{run.pk}.csv"'
    return response


@require_POST
def cancel(request: HttpRequest, run_id: int) -> HttpResponse:
    """End a run: at once when it only waits, else by telling its worker through the row."""
    require_staff(request)
    run = found_run(run_id)
    if run.move(RunState.CANCELLED, among=(RunState.QUEUED,), finished_at=timezone.now()):
        messages.success(request, _("The report was taken out of the queue."))
    elif ReportRun.objects.filter(pk=run.pk, state__in=WORKING).update(cancel_requested=True):
        messages.success(request, _("The report is being ended."))
    else:
        messages.info(request, _("The report had ended already."))
    return redirect("reports:run", run_id=run.pk)


@require_http_methods(["GET", "POST"])
def schedule_page(request: HttpRequest, schedule_id: int) -> HttpResponse:
    """Show and change when a schedule runs."""
    schedule = found_schedule(schedule_id)
    arguments = schedules.arguments(schedule)
    if request.method == "POST":
        require_staff(request)
        form = ScheduleForm(request.POST)
        if form.is_valid():
            schedule.enabled = form.cleaned_data["enabled"]
            schedule.kwargs = json.dumps({**arguments, "parameters": form.parameters()})
            if form.cleaned_data["kind"] == "interval":
                schedules.set_interval(
                    schedule, form.cleaned_data["every"], form.cleaned_data["period"]
                )
            else:
                schedules.set_cron(schedule, form.cleaned_data["cron"])
            messages.success(request, _("The schedule was changed."))
            return redirect("reports:list")
    else:
        form = ScheduleForm(initial=schedule_initial(schedule, arguments))
    return render(
        request,
        "reports/schedule.html",
        {"form": form, "schedule": schedule, "shown": shown_schedule(schedule_id)},
        status=200 if request.method == "GET" else 422,
    )


@require_POST
def schedule_switch(request: HttpRequest, schedule_id: int) -> HttpResponse:
    """Switch a schedule on or off."""
    require_staff(request)
    schedule = found_schedule(schedule_id)
    schedule.enabled = request.POST.get("enabled") == "on"
    schedule.save()
    messages.success(
        request,
        _("The schedule runs again.") if schedule.enabled else _("The schedule is switched off."),
    )
    return redirect("reports:list")


def schedule_initial(schedule: PeriodicTask, arguments: dict[str, Any]) -> dict[str, Any]:
    parameters = arguments.get("parameters") or {}
    initial = {
        "enabled": schedule.enabled,
        "hours": str(parameters.get("hours") or ""),
        "topic": parameters.get("topic", ""),
    }
    if schedule.interval is not None:
        return initial | {
            "kind": "interval",
            "every": schedule.interval.every,
            "period": schedule.interval.period,
        }
    cron = schedules.expression(schedule.crontab) if schedule.crontab is not None else "0 * * * *"
    return initial | {"kind": "cron", "cron": cron}


def found_run(run_id: int) -> ReportRun:
    return get_object_or_404(
        ReportRun.objects.select_related("schedule", "requested_by"), pk=run_id
    )


def found_schedule(schedule_id: int) -> PeriodicTask:
    found: PeriodicTask = get_object_or_404(schedules.all_schedules(), pk=schedule_id)
    return found


def shown_schedule(schedule_id: int) -> ShownSchedule | None:
    return next((each for each in shown_schedules() if each.schedule.pk == schedule_id), None)
