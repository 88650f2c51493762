"""Request: a report to make."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from analytics.reports.report import COMPARE, TOPIC
from analytics.store.plan import SPLIT_BYTES_DEFAULT
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from analytics.reports.report import Report, Value

LOOPBACK = "127.0.0.1"
MASTER_DEFAULT = "local[1]"
CONNECT_PREFIX = "sc://"
MS_A_MINUTE = 60_000


@dataclass(frozen=True, slots=True)
class Request:
    """A report to make; times are ms since epoch, `[from_ms, to_ms)`.

    `parameters` are the report's own, without omitted ones. `lake` may be read instead of the log:
    see `analytics.inputs`. `brokers` names the brokers to read if the cluster doesn't see the log:
    see `analytics.brokers`.
    """

    report: Report
    store: Path
    out: Path
    commit_log: Path | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict)
    master: str = MASTER_DEFAULT
    driver_host: str = LOOPBACK
    split_bytes: int = SPLIT_BYTES_DEFAULT
    lake: str | None = None
    lake_state: Path | None = None
    brokers: str = ""

    @property
    def topic(self) -> str | None:
        """The requested topic, None for all."""
        topic = self.parameters.get(TOPIC.name)
        return None if topic is None else str(topic)

    @property
    def topic_read(self) -> str | None:
        """The only topic whose messages are read, None for all."""
        is_groups = names.is_retry_topic(self.topic or "") or names.is_dlq_topic(self.topic or "")
        return self.topic if is_groups or not self.report.narrowed_by else None


def period_before(request: Request, now_ms: int) -> Request | None:
    """Return the request for the previous period of the same length, rounded to the minute.

    Return None if the previous period isn't requested, or the period has no beginning.
    """
    if not request.parameters.get(COMPARE.name) or request.from_ms is None:
        return None
    to_ms = now_ms if request.to_ms is None else request.to_ms
    # The lake counts by the minute.
    from_ms = max(0, 2 * request.from_ms - to_ms) // MS_A_MINUTE * MS_A_MINUTE
    return dataclasses.replace(request, from_ms=from_ms, to_ms=request.from_ms)


def span_seconds(request: Request, stored_from_ms: int | None) -> int:
    """Return the length of the time range that the result covers."""
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    to_ms = now_ms if request.to_ms is None else min(request.to_ms, now_ms)
    from_ms = max(request.from_ms or 0, stored_from_ms or 0)
    return max(0, to_ms - from_ms) // 1000


def moment_of(ms: int) -> datetime:
    """Convert ms since the epoch to a datetime."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
