"""Validation of results of any report, and their rows as CSV lines.

The report's description names the columns. Sums and charts come with the result because they cover
all rows, while the console only stores some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from console.lib import csv_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from console.data.reports.catalog import Column, Report

    Row = Mapping[str, Any]


class Series(msgspec.Struct, frozen=True):
    """A line of a chart; the unlabelled one sums all others. None: not measured."""

    label: str | None
    values: list[int | None]


class ChartPoints(msgspec.Struct, frozen=True, rename="camel"):
    """The points of a chart; times are seconds since the epoch."""

    step_seconds: int
    times: list[int]
    series: list[Series]


class BreakdownRow(msgspec.Struct, frozen=True):
    """A value, and the sums over all rows with it."""

    by: str
    sums: list[str]


class BreakdownSums(msgspec.Struct, frozen=True):
    """The largest values, and the number of values."""

    rows: list[BreakdownRow]
    count: int


class Bar(msgspec.Struct, frozen=True):
    """A value, and the sum over all rows with it."""

    by: str
    value: str


class BarSums(msgspec.Struct, frozen=True):
    """The visible bars, the number of values, and the sum of values without a bar."""

    rows: list[Bar]
    count: int
    others: str = "0"


class Figure(msgspec.Struct, frozen=True):
    """A value in a sentence."""

    value: str
    unit: str = ""


class Finding(msgspec.Struct, frozen=True):
    """A sentence with placeholders for its figures."""

    text: str
    figures: dict[str, Figure]


class Before(msgspec.Struct, frozen=True, rename={"from_ms": "from", "to_ms": "to"}):
    """The totals of the previous period, or None if the log doesn't reach back that far."""

    from_ms: str
    to_ms: str
    totals: dict[str, str] | None = None


class Engine(msgspec.Struct, frozen=True):
    """How a result was made: the Spark application, its statistics and its input.

    `reads` is a lake table, or the log; `because` explains why the lake wasn't used. `brokers` is
    set
    if a cluster without access to the log read the messages from brokers.
    """

    name: str
    because: Finding | None = None
    brokers: str = ""
    reads: str = "log"
    application_id: str = ""
    stages: str = "0"
    tasks: str = "0"
    rows: str = "0"


def check(report: Report, result: Mapping[str, Any]) -> None:
    """Check that all parts of a result match its report's description.

    Raises:
        ValueError: they don't match.
    """
    try:
        for row in result["rows"]:
            for column in report.columns:
                if column.is_number and row[column.name] is not None:
                    int(row[column.name])
        if report.breakdown is not None:
            for sums in msgspec.convert(result["breakdown"], BreakdownSums).rows:
                if len([int(number) for number in sums.sums]) != len(report.breakdown.sums):
                    raise ValueError(f"the breakdown of {sums.by} lacks a sum")
        if report.chart is not None:
            points = msgspec.convert(result["chart"], ChartPoints)
            if any(len(each.values) != len(points.times) for each in points.series):
                raise ValueError("the chart has a different number of values than times")
        if report.bars is not None:
            for bar in msgspec.convert(result["bars"], BarSums).rows:
                int(bar.value)
        findings = [msgspec.convert(result["finding"], Finding)] if "finding" in result else []
        if "engine" in result:
            because = msgspec.convert(result["engine"], Engine).because
            findings += [] if because is None else [because]
        for finding in findings:
            # A placeholder without its figure would fail on the page.
            finding.text % {name: figure.value for name, figure in finding.figures.items()}
        if "before" in result:
            msgspec.convert(result["before"], Before)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"it doesn't match the report's description: {error!r}") from error


def csv_lines(columns: Sequence[Column], rows: Iterable[Row]) -> Iterator[str]:
    """Return the rows as CSV lines, with a header."""
    names = [column.name for column in columns]
    return csv_file.csv_lines(names, ([row.get(name) for name in names] for row in rows))
