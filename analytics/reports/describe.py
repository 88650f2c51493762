"""The description of a report as JSON values, for forms, pages and schedulers.

    {"name": "traffic", "title": ..., "question": ...,
     "parameters": [{"name": "hours", "type": "integer", "label": ..., "help": ..., "default": 24,
                     "minimum": 1, "maximum": 8784, "choices": [{"value": 1, "label": ...}, ...]}],
     "columns": [{"name": "bytes", "type": "bigint", "label": ..., "unit": "bytes", "link": "",
                  "words": {}, "missing": "", "is_shown": true, "from_messages_of": ""},
                 {"name": "state", "type": "string", "label": ..., "unit": "", "link": "",
                  "words": {"new": ...}, "missing": "", "is_shown": true, "from_messages_of": ""}],
     "sorted_by": ["time", "topic"],
     "totals": [{"name": ..., "label": ..., "how": "sum", "column": ..., "unit": ..., "note": ...}],
     "chart": {"label": ..., "time": ..., "value": ..., "series": ..., "step_seconds": 60,
               "is_reading": false} | null,
     "breakdown": {"label": ..., "by": "topic", "sums": ["messages", "bytes"]} | null,
     "bars": {"label": ..., "by": "topic", "value": "messages", "ranked": true} | null,
     "behind": {"topic": "topic", "first": "time", "last": "", "seconds": 0, "key": "",
                "prefixes": {}} | null,
     "reads_samples": false,
     "needs": [{"name": "java", "label": ..., "check": [program, arguments ...]}]}

`check` exits with code 0 if the requirement is met. Otherwise it exits with 1 and prints one line,
{"sentence": ..., "remedy": ..., "command": ...}. It starts no JVM except for `java -version`.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from analytics.reports.report import TYPE_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analytics.reports.report import Report

FORMAT = 1


def description(report: Report) -> dict[str, Any]:
    """Return one report's description."""
    return {
        "name": report.name,
        "title": report.title,
        "question": report.question,
        "parameters": [asdict(parameter) for parameter in report.parameters],
        "columns": [
            {
                "name": column.name,
                "type": TYPE_NAMES[column.type],
                "label": column.label,
                "unit": column.unit,
                "link": column.link,
                "words": dict(column.words),
                "missing": column.missing,
                "is_shown": column.is_shown,
                "from_messages_of": column.from_messages_of,
            }
            for column in report.columns
        ],
        "sorted_by": list(report.sorted_by),
        "totals": [asdict(total) for total in report.totals],
        "chart": None if report.chart is None else asdict(report.chart),
        "breakdown": None if report.breakdown is None else asdict(report.breakdown),
        "bars": None if report.bars is None else asdict(report.bars),
        "behind": None if report.behind is None else asdict(report.behind),
        "reads_samples": bool(report.samples),
        "needs": [
            {"name": need.name, "label": need.label, "check": [sys.executable, "-m", need.module]}
            for need in report.needs
        ],
    }


def catalog(reports: Iterable[Report]) -> dict[str, Any]:
    """Return the output of `python -m analytics describe`."""
    return {"format": FORMAT, "reports": [description(report) for report in reports]}
