"""Who sees what of a report's result: some columns hold what only messages tell, such as keys.

Names and figures are for everyone who signs in. A value that comes from messages is for those who
may see the messages of its topic (`message.see`), wherever a result shows: on pages, in charts,
files and the API. What sums up all topics in such values is for those who may see all messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from console.accounts.actions import Action
from console.accounts.rights import rights_on
from console.reports.catalog import TOPIC_PARAMETER
from console.reports.presenting import report_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.http import HttpRequest

    from console.accounts.rights import Rights
    from console.reports.catalog import Column, Report
    from console.reports.models import ReportRun

HIDDEN = "hidden_values"
"""Under this name a result says how many of its values are hidden."""


def telling_columns(report: Report) -> list[Column]:
    """Return the columns whose values come from messages."""
    return [column for column in report.columns if column.from_messages_of]


def as_seen(run: ReportRun, rights: Rights) -> ReportRun:
    """Return a run with what somebody may see of its result; it is not for saving."""
    report = report_of(run)
    if report is None or run.result is None or rights.may_everywhere(Action.SEE):
        return run
    columns = telling_columns(report)
    if columns:
        run.result = seen(run.result, report, columns, rights)
        run.log_tail = ""
    return run


def seen(
    result: Mapping[str, Any], report: Report, columns: list[Column], rights: Rights
) -> dict[str, Any]:
    """Return a result without the values of messages that somebody may not see."""
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


def sees_all_of(run: ReportRun, rights: Rights) -> bool:
    """Whether somebody may have the file with all rows, in which nothing is hidden."""
    report = report_of(run)
    if report is None:
        # What an unknown report put into its file nobody can tell.
        return rights.may_everywhere(Action.SEE)
    return not telling_columns(report) or rights.may_everywhere(Action.SEE)


def require_all_of(run: ReportRun, rights: Rights) -> None:
    """Refuse the file with all rows to who may not see all of them.

    Raises:
        PermissionDenied: it takes message.see on every topic.
    """
    if not sees_all_of(run, rights):
        raise rights.refusal(Action.SEE, "*")


def require_to_run(request: HttpRequest, report: Report, parameters: Mapping[str, Any]) -> None:
    """Refuse to run or schedule a report about messages that somebody may not see.

    Raises:
        PermissionDenied: it takes message.see on the topic that is asked for, or on every topic.
    """
    if not telling_columns(report):
        return
    rights = rights_on(request)
    topic = str(parameters.get(TOPIC_PARAMETER) or "")
    if topic:
        rights.require(Action.SEE, topic)
    elif not rights.may_everywhere(Action.SEE):
        raise rights.refusal(Action.SEE, "*")
