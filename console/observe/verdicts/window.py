"""Window: the last hour of one subject by the minute, as input for rules.

Unknown values are None; a rule that needs one reports nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.observe.history.metrics import WHOLE, Column
from console.observe.history.series import Aspect, Line, values_of

if TYPE_CHECKING:
    from console.observe.history.metrics import Metric, Subject
    from console.observe.history.points import Points
    from console.observe.history.series import Values

MINUTES = 60


class Window:
    """The last MINUTES of a subject; the last value is the newest complete minute."""

    def __init__(self, subject: Subject, points: Points, now_ms: int) -> None:
        self.subject = subject
        self.now_ms = now_ms
        self._points = points

    def values(self, metric: Metric, aspect: Aspect = Aspect.MEAN, part: int = WHOLE) -> Values:
        return values_of([self._points], Line("", metric, aspect, part))

    def parts(self, metric: Metric) -> list[int]:
        """Return the parts, such as queues, for which a figure is known."""
        return [
            column.part
            for column in self._points.columns
            if column.code == metric.code and column.part != WHOLE
        ]

    def last(self, metric: Metric, part: int = WHOLE) -> float | None:
        """Return the newest value, or None if it is unknown."""
        values = self.values(metric, part=part)
        return values[-1] if values else None

    def mean(self, metric: Metric, low: int, high: int, part: int = WHOLE) -> float | None:
        """Return the mean over the minutes from `high` to `low` minutes ago.

        None if less than half of these minutes are known.
        """
        return mean_of(self.values(metric, part=part), low, high)

    def sum(self, metric: Metric, minutes: int) -> float | None:
        """Return a counter's total over the last minutes, or None if all are unknown."""
        known = [v for v in self.values(metric, Aspect.SUM)[-minutes:] if v is not None]
        return sum(known) if known else None

    def known(self, metric: Metric, minutes: int) -> bool:
        """Whether every one of the last minutes is known."""
        values = self.values(metric)[-minutes:]
        return len(values) == minutes and all(value is not None for value in values)

    def histogram(self, metric: Metric, minutes: int) -> list[int]:
        """Return the number of calls in each bucket over the last minutes."""
        found: dict[int, int] = {}
        for part in self.parts(metric):
            row = self._points.sum(Column(metric.code, part))
            if row is not None:
                found[part] = int(row[-minutes:].sum())
        return [found.get(part, 0) for part in range(max(found, default=-1) + 1)]


def mean_of(values: Values, low: int, high: int) -> float | None:
    some = values[len(values) - high : len(values) - low]
    known = [value for value in some if value is not None]
    return sum(known) / len(known) if len(known) * 2 >= high - low else None
