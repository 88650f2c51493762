"""What a result must be, for any report, and its rows as CSV lines.

The report's description names the columns. Sums and chart come with the result: they are of all
rows, and the console keeps some only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from console.ui import csv_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from console.reports.catalog import Column, Report

    Row = Mapping[str, Any]


class Series(msgspec.Struct, frozen=True):
    """A line of a chart; the one without a label sums up all others. None: nobody looked."""

    label: str | None
    values: list[int | None]


class ChartPoints(msgspec.Struct, frozen=True, rename="camel"):
    """The points of a chart; times are seconds since the epoch."""

    step_seconds: int
    times: list[int]
    series: list[Series]


class BreakdownRow(msgspec.Struct, frozen=True):
    """A value, and the sums of all rows that have it."""

    by: str
    sums: list[str]


class BreakdownSums(msgspec.Struct, frozen=True):
    """The largest values, and how many there are."""

    rows: list[BreakdownRow]
    count: int


class Bar(msgspec.Struct, frozen=True):
    """A value, and the sum of all rows that have it."""

    by: str
    value: str


class BarSums(msgspec.Struct, frozen=True):
    """The bars shown, how many values there are, and the sum of those without a bar."""

    rows: list[Bar]
    count: int
    others: str = "0"


class Figure(msgspec.Struct, frozen=True):
    """A value in a sentence."""

    value: str
    unit: str = ""


class Finding(msgspec.Struct, frozen=True):
    """A sentence with places for its figures."""

    text: str
    figures: dict[str, Figure]


class Before(msgspec.Struct, frozen=True, rename={"from_ms": "from", "to_ms": "to"}):
    """The totals of the period before; None if the log does not reach back so far."""

    from_ms: str
    to_ms: str
    totals: dict[str, str] | None = None


class Engine(msgspec.Struct, frozen=True):
    """What made a result, and why it was not the lake; `reads` is the only table of it, if any."""

    name: str
    because: Finding | None = None
    brokers: str = ""
    reads: str = ""

    @property
    def is_lake(self) -> bool:
        return self.name == "duckdb"


def check(report: Report, result: Mapping[str, Any]) -> None:
    """Check that all parts of a result are what its report describes.

    Raises:
        ValueError: they are not.
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
                raise ValueError("the chart's values are more or fewer than its times")
        if report.bars is not None:
            for bar in msgspec.convert(result["bars"], BarSums).rows:
                int(bar.value)
        findings = [msgspec.convert(result["finding"], Finding)] if "finding" in result else []
        if "engine" in result:
            because = msgspec.convert(result["engine"], Engine).because
            findings += [] if because is None else [because]
        for finding in findings:
            # A place without its figure would fail on the page.
            finding.text % {name: figure.value for name, figure in finding.figures.items()}
        if "before" in result:
            msgspec.convert(result["before"], Before)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"it is not what the report describes: {error!r}") from error


def csv_lines(columns: Sequence[Column], rows: Iterable[Row]) -> Iterator[str]:
    """Return the lines of the rows as CSV, the column names first."""
    names = [column.name for column in columns]
    return csv_file.csv_lines(names, ([row.get(name) for name in names] for row in rows))
