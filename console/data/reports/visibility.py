"""Permissions on report results: some columns hold message contents, such as keys.

Names and figures are for everyone who is signed in. A value from messages is for people with
`message.see` on its topic, wherever a result is shown: on pages, in charts, files and the API. Sums
of such values over all topics are for people who can see all messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from console.accounts.actions import Action
from console.accounts.rights import rights_on
from console.data.reports.catalog import TOPIC_PARAMETER
from console.data.reports.presenting import report_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.http import HttpRequest

    from console.accounts.rights import Rights
    from console.data.reports.catalog import Column, Report
    from console.data.reports.models import ReportRun

HIDDEN = "hidden_values"
"""The key in a result for the number of hidden values."""


def message_columns(report: Report) -> list[Column]:
    """Return the columns whose values come from messages."""
    return [column for column in report.columns if column.from_messages_of]


def visible_run(run: ReportRun, rights: Rights) -> ReportRun:
    """Return a run with the visible part of its result; don't save it."""
    report = report_of(run)
    if report is None or run.result is None or rights.may_everywhere(Action.SEE):
        return run
    columns = message_columns(report)
    if columns:
        run.result = visible_result(run.result, report, columns, rights)
        run.log_tail = ""
    return run


def visible_result(
    result: Mapping[str, Any], report: Report, columns: list[Column], rights: Rights
) -> dict[str, Any]:
    """Return a result without the message values that these rights don't cover."""
    names = {column.name for column in columns}
    rows, hidden = [], 0
    for row in result["rows"]:
        shown = dict(row)
        for column in columns:
            topic = str(row.get(column.from_messages_of) or "")
            if row.get(column.name) is not None and not rights.may(Action.SEE, topic):
                shown[column.name] = None
                hidden += 1
        rows.append(shown)
    left = {name: value for name, value in result.items() if name != "finding"}
    for part, by in (
        ("chart", report.chart and report.chart.series),
        ("bars", report.bars and report.bars.by),
        ("breakdown", report.breakdown and report.breakdown.by),
    ):
        if by in names:
            left.pop(part, None)
    return {**left, "rows": rows, HIDDEN: hidden}


def may_see_all_rows(run: ReportRun, rights: Rights) -> bool:
    """Whether these rights cover the file with all rows, in which nothing is hidden."""
    report = report_of(run)
    if report is None:
        # The file of an unknown report may contain anything.
        return rights.may_everywhere(Action.SEE)
    return not message_columns(report) or rights.may_everywhere(Action.SEE)


def require_all_rows(run: ReportRun, rights: Rights) -> None:
    """Require access to the file with all rows.

    Raises:
        PermissionDenied: message.see on every topic is missing.
    """
    if not may_see_all_rows(run, rights):
        raise rights.refusal(Action.SEE, "*")


def require_to_run(request: HttpRequest, report: Report, parameters: Mapping[str, Any]) -> None:
    """Require permission to run or schedule a report about messages.

    Raises:
        PermissionDenied: message.see is missing on the requested topic, or on every topic.
    """
    if not message_columns(report):
        return
    rights = rights_on(request)
    topic = str(parameters.get(TOPIC_PARAMETER) or "")
    if topic:
        rights.require(Action.SEE, topic)
    elif not rights.may_everywhere(Action.SEE):
        raise rights.refusal(Action.SEE, "*")
