"""All reports, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.reports import (
    anomalies,
    changes,
    clients,
    consumption,
    delays,
    drain,
    duplicates,
    failures,
    keys,
    lag,
    latency,
    ordering,
    origins,
    owners,
    queues,
    retries,
    senders,
    sizes,
    topics,
    traffic,
    transactions,
)

if TYPE_CHECKING:
    from analytics.reports.report import Report

REPORTS: dict[str, Report] = {
    report.name: report
    for report in (
        traffic.REPORT,
        origins.REPORT,
        retries.REPORT,
        failures.REPORT,
        lag.REPORT,
        drain.REPORT,
        latency.REPORT,
        consumption.REPORT,
        keys.REPORT,
        queues.REPORT,
        senders.REPORT,
        sizes.REPORT,
        duplicates.REPORT,
        ordering.REPORT,
        delays.REPORT,
        transactions.REPORT,
        topics.REPORT,
        owners.REPORT,
        anomalies.REPORT,
        changes.REPORT,
        clients.REPORT,
    )
}
