"""Report metrics: runs by state, and the last success of each report."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from django.utils import timezone

from console.data.reports.models import ReportRun, RunState
from console.observe.scraping.families import gauge, one

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker_core.metrics.exposition import Family

FIELDS = ("report", "state", "created_at", "started_at", "finished_at", "heartbeat_at")


def families(now_ms: int) -> Iterator[Family]:
    """Yield the metrics of the stored runs."""
    counts: Counter[tuple[str, str]] = Counter()
    succeeded: dict[str, ReportRun] = {}
    ended: dict[str, ReportRun] = {}
    waits = [0.0]
    for run in ReportRun.objects.only(*FIELDS):  # newest first
        state = run.shown_state
        counts[run.report, state.value] += 1
        if state == RunState.QUEUED:
            waits.append((timezone.now() - run.created_at).total_seconds())
        if state == RunState.DONE:
            succeeded.setdefault(run.report, run)
        if state in {RunState.DONE, RunState.FAILED}:
            ended.setdefault(run.report, run)
    yield gauge(
        "report_runs",
        "Stored runs, by report and state",
        [({"report": report, "state": state}, n) for (report, state), n in counts.items()],
    )
    yield one("report_queued_seconds", "Age of the oldest queued run", max(waits))
    yield gauge(
        "report_failed",
        "Whether the last finished run failed",
        [
            ({"report": report}, float(run.shown_state == RunState.FAILED))
            for report, run in ended.items()
        ],
    )
    yield gauge(
        "report_succeeded_timestamp_seconds",
        "Time when a report last succeeded",
        [
            ({"report": report}, run.finished_at.timestamp() if run.finished_at else None)
            for report, run in succeeded.items()
        ],
    )
    yield gauge(
        "report_seconds",
        "Duration of the last successful run",
        [({"report": report}, run.seconds) for report, run in succeeded.items()],
    )
