"""The reports there are, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.reports import traffic

if TYPE_CHECKING:
    from analytics.reports.report import Report

REPORTS: dict[str, Report] = {report.name: report for report in (traffic.REPORT,)}
