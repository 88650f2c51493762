"""Make a report of a store with the shared Spark, without a separate process."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from analytics.collect import Outcome, collect
from analytics.inputs import log_input
from analytics.lake.tables import DAY, SAMPLES
from analytics.progress import ProgressLines
from analytics.reports.catalog import REPORTS
from analytics.reports.summaries import summaries_of
from analytics.reports.totals import totals_of
from analytics.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from analytics.reports.report import Report
    from analytics.session import Spark


def outcome_of(
    spark: Spark,
    store: Path,
    name: str,
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
    **parameters: int | str,
) -> Outcome:
    request = Request(
        report=REPORTS[name].with_parameters(parameters),
        store=store,
        out=store / "out",
        from_ms=from_ms,
        to_ms=to_ms,
        parameters=parameters,
    )
    return collect(spark, request, log_input(request), ProgressLines(io.StringIO()))


def rows_of(spark: Spark, store: Path, name: str, **how: Any) -> list[dict[str, Any]]:
    """Return the rows of the result, in order."""
    rows: list[dict[str, Any]] = outcome_of(spark, store, name, **how).table.to_pylist()
    return rows


def result_of(name: str, outcome: Outcome) -> dict[str, Any]:
    """Return the parts that a page shows above the rows: totals, summary, charts."""
    report = REPORTS[name]
    return {
        "totals": totals_of(report, outcome.table),
        **summaries_of(report, outcome.table, outcome.step_seconds),
    }


def sentence_of(name: str, outcome: Outcome) -> str:
    """Return the summary with unformatted figures."""
    finding = result_of(name, outcome)["finding"]
    figures = {name: figure["value"] for name, figure in finding["figures"].items()}
    text: str = finding["text"] % figures
    return text


def table_of(
    spark: SparkSession,
    report: Report,
    samples: Iterable[dict[str, Any]],
    parameters: Mapping[str, int | str],
    step_seconds: int,
) -> pa.Table:
    """Return a report's table for samples, in order."""
    names = [name for name in SAMPLES.schema.names if name != DAY]
    rows = pa.Table.from_pylist(list(samples), SAMPLES.schema).select(names)
    given = spark.createDataFrame(rows, from_arrow_schema(rows.schema))
    table = report.transform(given, parameters, step_seconds).toArrow()
    table = table.cast(to_arrow_schema(report.schema, timezone="UTC"))
    return table.sort_by([(name, "ascending") for name in report.sorted_by])
