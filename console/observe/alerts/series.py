"""The metrics available for thresholds: the lines of all charts that are stored as such.

A queue's lag is part of its group's progress, which has lines of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from console.observe.history.charts import OF_KIND
from console.observe.history.metrics import QUEUE

if TYPE_CHECKING:
    from django.utils.functional import Promise

    from console.observe.history.charts import Chart, ChartLine


class Series(NamedTuple):
    """A line of a chart; rules store its key."""

    key: str
    kind: str
    chart: Chart
    line: ChartLine

    @property
    def unit(self) -> Promise | str:
        return self.chart.unit

    @property
    def title(self) -> str:
        """The titles of the chart and the line, or one title if they are the same."""
        chart, line = str(self.chart.title), str(self.line.label)
        return chart if chart.casefold() == line.casefold() else f"{chart}: {line}"

    @property
    def label(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title


SERIES: dict[str, Series] = {
    (key := f"{kind}/{chart.slug}/{line.name}"): Series(key, kind, chart, line)
    for kind, charts in OF_KIND.items()
    if kind != QUEUE
    for chart in charts
    for line in chart.lines
}
