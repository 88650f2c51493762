"""The figures that thresholds can be set on: every line of every chart of the history."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from console.history.charts import OF_KIND

if TYPE_CHECKING:
    from django.utils.functional import Promise

    from console.history.charts import Chart, ChartLine


class Series(NamedTuple):
    """A line of a chart; its key is what rules keep."""

    key: str
    kind: str
    chart: Chart
    line: ChartLine

    @property
    def unit(self) -> Promise | str:
        return self.chart.unit

    @property
    def label(self) -> str:
        unit = f" ({self.unit})" if self.unit else ""
        return f"{self.chart.title}: {self.line.label}{unit}"


SERIES: dict[str, Series] = {
    (key := f"{kind}/{chart.slug}/{line.name}"): Series(key, kind, chart, line)
    for kind, charts in OF_KIND.items()
    for chart in charts
    for line in chart.lines
}
