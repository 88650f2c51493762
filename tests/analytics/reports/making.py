"""A report made of a store by the shared Spark, without a process of its own."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from analytics.collect import Outcome, collect
from analytics.progress import ProgressLines
from analytics.reports.catalog import REPORTS
from analytics.reports.summaries import summaries_of
from analytics.reports.totals import totals_of
from analytics.request import Request
from analytics.store.reader import StoreReader

if TYPE_CHECKING:
    from pathlib import Path

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
    topic = request.topic_read
    plan = StoreReader(store).plan(
        from_ms=from_ms,
        to_ms=to_ms,
        topics=None if topic is None else frozenset({topic}),
    )
    return collect(spark, request, plan, ProgressLines(io.StringIO()))


def rows_of(spark: Spark, store: Path, name: str, **how: Any) -> list[dict[str, Any]]:
    """Return the rows of the result, in its order."""
    rows: list[dict[str, Any]] = outcome_of(spark, store, name, **how).table.to_pylist()
    return rows


def said_by(name: str, outcome: Outcome) -> dict[str, Any]:
    """Return what a page shows above the rows: totals, sentence, charts."""
    report = REPORTS[name]
    return {
        "totals": totals_of(report, outcome.table),
        **summaries_of(report, outcome.table, outcome.step_seconds),
    }


def sentence_of(name: str, outcome: Outcome) -> str:
    """Return the sentence with its figures as they are."""
    finding = said_by(name, outcome)["finding"]
    figures = {name: figure["value"] for name, figure in finding["figures"].items()}
    text: str = finding["text"] % figures
    return text
