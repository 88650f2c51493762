"""Links from the numbers of a result to the messages they count, in the log or the lake."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.urls import reverse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.data.reports.catalog import Column, Report
    from console.data.reports.models import ReportRun

COUNTED = "messages"
MS_A_SECOND = 1_000


@dataclass(frozen=True, slots=True)
class MessageLinks:
    """Builds the links for one run.

    Attributes:
        asks_lake: whether the reader may query the lake, which keeps messages after the log
            expires.
    """

    run: ReportRun
    report: Report
    asks_lake: bool

    def of_row(self, row: Mapping[str, Any], column: Column) -> str:
        """Return the URL of the messages that a number of a row counts, or ""."""
        behind = self.report.behind
        topic = "" if behind is None else self._topic(row.get(behind.topic), column)
        if behind is None or not topic:
            return ""
        low, high = self._of_run()
        first = moment_ms(row.get(behind.first))
        if behind.first:
            if first is None:
                return ""
            low = first
            last = moment_ms(row.get(behind.last))
            # Results contain whole seconds, so include the entire last second.
            seconds = behind.seconds or int((self.run.result or {}).get("step_seconds", 0))
            high = last + MS_A_SECOND if last is not None else first + seconds * MS_A_SECOND
        key = str(row.get(behind.key) or "") if behind.key else ""
        return self._address(topic, low, high, key)

    def of_value(self, by: Column, value: Any, column: Column) -> str:
        """Return the URL of the messages in a value's sum, or "" if the value isn't a topic."""
        behind = self.report.behind
        topic = self._topic(value, column)
        if behind is None or by.name != behind.topic or not topic:
            return ""
        return self._address(topic, *self._of_run(), "")

    def _topic(self, value: Any, column: Column) -> str:
        """Return the topic whose messages a number of a value counts, or ""."""
        behind = self.report.behind
        if behind is None or column.unit != COUNTED or not value:
            return ""
        if not behind.prefixes:
            return str(value)
        prefix = behind.prefixes.get(column.name)
        return "" if prefix is None else f"{prefix}{value}"

    def _of_run(self) -> tuple[int | None, int]:
        result = self.run.result or {}
        ended = self.run.finished_at or self.run.created_at
        low, high = (result.get(name) for name in ("from", "to"))
        return (
            None if low is None else int(low),
            int(ended.timestamp() * 1000) if high is None else int(high),
        )

    def _address(self, topic: str, low: int | None, high: int, key: str) -> str:
        if low is None or high <= low:
            return ""
        asked = {"topic": topic, "from": str(low), "to": str(high)}
        asked |= {"key": key} if key else {}
        log_from = (self.run.result or {}).get("log_stored_from")
        in_lake = self.asks_lake and log_from is not None and low < int(log_from)
        page = "sql:editor" if in_lake else "browse:search"
        return f"{reverse(page)}?{urlencode(asked)}"


def moment_ms(text: Any) -> int | None:
    """Return a result's time in ms since the epoch, or None for any other value."""
    try:
        when = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
