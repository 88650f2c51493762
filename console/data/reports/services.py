"""Report runs: start, find, cancel and download them, for the pages and the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import FileResponse, Http404, HttpRequest, StreamingHttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.utils.translation import gettext as _

from console.accounts.rights import rights_on
from console.data.reports import results, visibility
from console.data.reports.models import WORKING, ReportRun, RunState
from console.data.reports.presenting import report_of
from console.data.reports.runner import parquet_path
from console.data.reports.tasks import queue
from console.people.audit.models import Entry
from console.people.audit.record import change

if TYPE_CHECKING:
    from console.data.reports.catalog import Report


def start_run(request: HttpRequest, report: Report, parameters: dict[str, Any]) -> ReportRun:
    """Queue a run, with an audit entry; a run that can't be queued has failed."""
    visibility.require_to_run(request, report, parameters)
    with change(request, "report.start", report.name, after=parameters) as entry:
        run = ReportRun.objects.create(
            report=report.name, parameters=parameters, requested_by_id=request.user.pk
        )
        if problem := queue(run):
            entry.outcome = Entry.Outcome.FAILED
            entry.remark = problem
    return run


def csv_of(run: ReportRun) -> StreamingHttpResponse:
    report = report_of(run)
    if run.result is None or report is None:
        raise Http404(_("This run has no result."))
    lines = results.csv_lines(report.columns, run.rows)
    response = StreamingHttpResponse(lines, content_type="text/csv")
    response["Content-Disposition"] = f'attachment; filename="{run.report}-{run.pk}.csv"'
    return response


def parquet_of(request: HttpRequest, run: ReportRun) -> FileResponse:
    visibility.require_all_rows(run, rights_on(request))
    try:
        file = parquet_path(run.pk).open("rb")
    except OSError as error:
        raise Http404(_("The Parquet file of this run is no longer stored.")) from error
    return FileResponse(file, as_attachment=True, filename=f"{run.report}-{run.pk}.parquet")


def cancel_run(request: HttpRequest, run: ReportRun) -> tuple[bool, str]:
    """Cancel a run, with an audit entry; return whether it has ended, and a sentence."""
    with change(request, "report.cancel", f"{run.report} {run.pk}"):
        if run.move(RunState.CANCELLED, among=(RunState.QUEUED,), finished_at=timezone.now()):
            return True, _("The run was removed from the queue.")
        if ReportRun.objects.filter(pk=run.pk, state__in=WORKING).update(cancel_requested=True):
            return True, _("Cancelling the run.")
    return False, _("The run had already finished.")


def get_run(request: HttpRequest, run_id: int) -> ReportRun:
    """Return a run with the part of its result that this person may see."""
    run = get_object_or_404(ReportRun.objects.select_related("schedule", "requested_by"), pk=run_id)
    return visibility.visible_run(run, rights_on(request))
