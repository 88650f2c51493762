"""The report pages: the list, and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import messages
from django.http import (
    Http404,
    HttpResponse,
    JsonResponse,
)
from django.shortcuts import redirect, render
from django.utils.translation import get_language, gettext, gettext as _, ngettext, override
from django.views.decorators.http import require_safe

from console.accounts.permissions import operators_action
from console.accounts.rights import rights_on
from console.accounts.roles import may_query
from console.data.reports import catalog, health, visibility
from console.data.reports.forms import ParametersForm, StartForm
from console.data.reports.message_links import MessageLinks
from console.data.reports.models import (
    ReportRun,
)
from console.data.reports.notifications import picture_of
from console.data.reports.presenting import (
    ShownRun,
    report_of,
    shown_bars,
    shown_reports,
    shown_schedules,
)
from console.data.reports.runner import parquet_path
from console.data.reports.scope import scope
from console.data.reports.services import cancel_run, csv_of, get_run, parquet_of, start_run
from console.observe.alerts import fonts, rasters
from console.observe.alerts.pictures import series_label

if TYPE_CHECKING:
    from django.forms import Form
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from console.data.reports.catalog import Report
    from console.observe.alerts.pictures import Picture

RUNS_SHOWN = 50
ROWS_SHOWN = 200
BREAKDOWN_ROWS_SHOWN = 100
SECONDS_A_MINUTE, SECONDS_AN_HOUR, SECONDS_A_DAY = 60, 3_600, 86_400


@require_safe
def report_list(request: HttpRequest) -> HttpResponse:
    """Show the reports, their next runs and their past runs."""
    return render(
        request,
        "reports/list.html",
        {
            "problems": health.problems(),
            "scope": scope(),
            "reports": shown_reports(),
            "schedules": shown_schedules(),
            "runs": recent_runs(),
            **start_dialog(),
        },
    )


def start_dialog(run: ReportRun | None = None) -> dict[str, Any]:
    """Return the forms of the start dialog, filled in from an earlier run."""
    reports = catalog.known_reports()
    forms = [
        ParametersForm(
            report, initial=run.parameters if run is not None and run.report == name else None
        )
        for name, report in reports.items()
    ]
    chosen = "" if run is None else run.report
    return {"start_form": StartForm(reports, chosen=chosen), "parameter_forms": forms}


@require_safe
def runs(request: HttpRequest) -> HttpResponse:
    """Show only the table of runs; the page polls this while a report runs."""
    return render(request, "reports/_runs.html", {"runs": recent_runs()})


@require_safe
def health_banners(request: HttpRequest) -> HttpResponse:
    """Show only the problems that prevent reports from running."""
    return render(request, "reports/_health.html", {"problems": health.problems()})


def recent_runs() -> list[ShownRun]:
    found = ReportRun.objects.select_related("schedule", "requested_by").defer("log_tail")
    return [ShownRun(run) for run in found[:RUNS_SHOWN]]


@operators_action
def start(request: HttpRequest) -> HttpResponse:
    """Queue a run and show it, or show why that failed."""
    blocked = health.blocking_problem()
    if blocked is not None:
        messages.error(request, blocked.sentence)
        return redirect("reports:list")
    reports = catalog.known_reports()
    form = StartForm(reports, request.POST)
    if not form.is_valid():
        return list_with_errors(request, form)
    report = reports[form.cleaned_data["report"]]
    parameters_form = ParametersForm(report, request.POST)
    if not parameters_form.is_valid():
        return list_with_errors(request, parameters_form)
    run = start_run(request, report, parameters_form.parameters())
    return redirect("reports:run", run_id=run.pk)


def list_with_errors(request: HttpRequest, form: Form) -> HttpResponse:
    """Return to the list with the form errors."""
    for name, problems in form.errors.items():
        label = form.fields[name].label if name in form.fields else ""
        for problem in problems:
            messages.error(request, f"{label}: {problem}" if label else str(problem))
    return redirect("reports:list")


@require_safe
def run_page(request: HttpRequest, run_id: int) -> HttpResponse:
    """Show the progress of a run, or its result."""
    run = get_run(request, run_id)
    shown = ShownRun(run)
    context: dict[str, Any] = {
        "shown": shown,
        "problems": health.problems() if run.is_active else [],
        **start_dialog(run),
    }
    picture = draw_chart(run, shown.report)
    context["picture"] = picture is not None
    context["font"] = picture is not None and font_missing(picture)
    sees_all = visibility.may_see_all_rows(run, rights_on(request))
    context["parquet"] = shown.is_done and sees_all and parquet_path(run.pk).is_file()
    if run.result is not None and shown.report is not None:
        context |= result_context(run, run.result, shown.report)
        asks_lake = bool(settings.TREBUCHET_LAKE) and may_query(request.user)
        context["behind"] = MessageLinks(run, shown.report, asks_lake)
    return render(request, "reports/run.html", context)


def result_context(run: ReportRun, result: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return the template context for the result of a finished run."""
    rows = run.rows
    shown: dict[str, Any] = {
        "result": result,
        "report": report,
        "rows": rows[-ROWS_SHOWN:][::-1],
        "row_count": run.result_rows,
        "rows_kept": len(rows),
        "rows_left_out": max(0, len(rows) - ROWS_SHOWN),
        "bars": shown_bars(report, result),
    }
    if report.breakdown is not None and "breakdown" in result:
        found = result["breakdown"]
        columns = [report.column(name) for name in report.breakdown.sums]
        shown |= {
            "breakdown_by": report.column(report.breakdown.by),
            "breakdown_columns": columns,
            "breakdown_rows": [
                (row["by"], list(zip(row["sums"], columns, strict=True)))
                for row in found["rows"][:BREAKDOWN_ROWS_SHOWN]
            ],
            "breakdown_left_out": max(0, int(found["count"]) - BREAKDOWN_ROWS_SHOWN),
        }
    return shown


@require_safe
def run_progress(request: HttpRequest, run_id: int) -> HttpResponse:
    """Show only the progress; once the run has ended, make the page load its result."""
    run = get_run(request, run_id)
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
    """Return the chart's numbers, and the duration of a point as a phrase."""
    run = get_run(request, run_id)
    report = report_of(run)
    if run.result is None or report is None or report.chart is None:
        raise Http404(_("This run has no chart."))
    chart = run.result.get("chart") or {"stepSeconds": report.chart.step_seconds, "series": []}
    series = [{**each, "label": series_label(each["label"])} for each in chart["series"]]
    context = {
        "value": gettext(report.column(report.chart.value).label),
        "per_step": per_step(chart["stepSeconds"]),
    }
    if report.chart.is_reading:
        step = _("%(value)s, one point %(per_step)s, in your time zone") % context
    else:
        step = _("%(value)s %(per_step)s, in your time zone") % context
    is_reading = report.chart.is_reading
    return JsonResponse({**chart, "series": series, "step": step, "isReading": is_reading})


@require_safe
def run_csv(request: HttpRequest, run_id: int) -> HttpResponseBase:
    """Return the stored rows as CSV."""
    return csv_of(get_run(request, run_id))


@require_safe
def run_picture(request: HttpRequest, run_id: int) -> HttpResponse:
    """Return the chart of a result as PNG."""
    run = get_run(request, run_id)
    picture = draw_chart(run, report_of(run))
    if picture is None:
        raise Http404(_("This run has no chart."))
    response = HttpResponse(rasters.png_of(picture), content_type=rasters.CONTENT_TYPE)
    response["Content-Disposition"] = f'attachment; filename="{run.report}-{run.pk}.png"'
    return response


def draw_chart(run: ReportRun, report: Report | None) -> Picture | None:
    """Return the chart of a result with text this machine can render, or None without a chart."""
    with override(rasters.writable(get_language() or "en")):
        return None if report is None else picture_of(run, report)


def font_missing(picture: Picture) -> str:
    """Return the package that provides the missing letters for pictures, or ""."""
    language = get_language() or "en"
    is_whole = rasters.writable(language) == language and not rasters.is_font_missing(picture)
    return "" if is_whole else fonts.PACKAGE


@require_safe
def run_parquet(request: HttpRequest, run_id: int) -> HttpResponseBase:
    """Return the file with all rows of the result, if it is still stored."""
    return parquet_of(request, get_run(request, run_id))


@operators_action
def cancel(request: HttpRequest, run_id: int) -> HttpResponse:
    """Cancel a run: at once if it is queued, else by a flag for its worker."""
    run = get_run(request, run_id)
    is_ending, text = cancel_run(request, run)
    (messages.success if is_ending else messages.info)(request, text)
    return redirect("reports:run", run_id=run.pk)


def per_step(seconds: int) -> str:
    """Return the duration of a point of a chart: "per 10 minutes"."""
    if seconds % SECONDS_A_DAY == 0:
        number = seconds // SECONDS_A_DAY
        words = ngettext("per day", "per %(number)d days", number)
    elif seconds % SECONDS_AN_HOUR == 0:
        number = seconds // SECONDS_AN_HOUR
        words = ngettext("per hour", "per %(number)d hours", number)
    elif seconds % SECONDS_A_MINUTE == 0:
        number = seconds // SECONDS_A_MINUTE
        words = ngettext("per minute", "per %(number)d minutes", number)
    else:
        number = seconds
        words = ngettext("per second", "per %(number)d seconds", number)
    return words % {"number": number}
