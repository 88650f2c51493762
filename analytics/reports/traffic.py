"""The traffic report: messages and bytes stored, by topic and minute."""

from __future__ import annotations

from analytics.reports.report import Report
from analytics.schemas import TRAFFIC
from analytics.transforms import traffic

REPORT = Report(
    name="traffic",
    summary="messages and bytes stored, by topic and UTC minute",
    columns=traffic.COLUMNS,
    transform=traffic.per_minute,
    schema=TRAFFIC,
    sorted_by=("minute", "topic"),
)
