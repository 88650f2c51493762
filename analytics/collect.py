"""The reading of a report: from a plan and a running Spark to the result's table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation, functions as F  # noqa: N812 - as in Spark's documentation
from pyspark.sql.pandas.types import to_arrow_schema

from analytics.brokers import options_for
from analytics.facts import facts_of
from analytics.progress import READING, reading_followed
from analytics.reports.report import step_for
from analytics.request import span_seconds
from analytics.schemas import DAMAGE_COLUMN, MESSAGES_COLUMN, messages_with
from analytics.sources import commitlog, rocketmq_options
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from analytics.engine import Engine
    from analytics.progress import ProgressLines
    from analytics.request import Request
    from analytics.store.plan import ReadPlan

BODY = "body"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Spark's answer: the result, the number of messages behind it, the damaged ranges."""

    table: pa.Table
    rows_read: int
    damages: list[dict[str, Any]]
    step_seconds: int


def collect(
    spark: Engine,
    request: Request,
    plan: ReadPlan,
    lines: ProgressLines,
    stage: str = READING,
    *,
    from_brokers: bool = False,
) -> Outcome:
    """Read what is planned and compute the report.

    Args:
        from_brokers: read the same time from brokers, not from the log.

    Raises:
        ReportError: the store's configuration cannot be understood.
        PySparkException, Py4JError: Spark failed, or was cancelled.
    """
    report = request.report
    assert report.transform is not None
    spark.begin(report.title)
    observed = Observation("reading")
    step_seconds = step_for(report, span_seconds(request, plan.stored_from_ms))
    grouped_by = () if from_brokers else report.grouped_by
    if from_brokers:
        read = _from_brokers(spark, request)
    else:
        read = _messages(spark, request, plan, grouped_by, step_seconds)
    rows = F.sum(F.coalesce(MESSAGES_COLUMN, F.lit(1))) if grouped_by else F.count(F.lit(1))
    messages = read.observe(
        observed, rows.alias("rows"), F.collect_list(DAMAGE_COLUMN).alias("damages")
    )
    sound = messages.where(F.col(DAMAGE_COLUMN).isNull()).drop(DAMAGE_COLUMN)
    if report.client_traces:
        traces = _client_traces(spark, request, plan)
        sound = sound.unionByName(traces, allowMissingColumns=True)
    if report.prepare is not None:
        sound = report.prepare(sound, facts_of(request.store))
    with reading_followed(
        spark,
        lines,
        stage,
        total_bytes=plan.split_bytes,
        tasks=len(plan.shares(request.split_bytes)),
        tells_rows=not grouped_by,
    ):
        result = report.transform(sound, request.parameters, step_seconds)
        if request.topic != request.topic_read:
            result = result.where(F.col(report.narrowed_by) == F.lit(request.topic))
        table = result.toArrow()
    table = table.cast(to_arrow_schema(report.schema, timezone="UTC"))
    table = table.sort_by([(name, "ascending") for name in report.sorted_by])
    damages = [row.asDict() for row in observed.get["damages"]]
    # A range of a queue has no place in the log.
    damages.sort(key=lambda damage: (damage["commit_log_from"] or 0, damage["file"]))
    return Outcome(table, (observed.get["rows"] or 0) - len(damages), damages, step_seconds)


def _messages(
    spark: Engine, request: Request, plan: ReadPlan, grouped_by: Sequence[str], step_seconds: int
) -> DataFrame:
    report = request.report
    without = {BODY} if report.client_traces else set()
    return _load(
        spark,
        request,
        plan,
        columns=[name for name in report.reads if name not in without],
        grouped_by=grouped_by,
        topic=request.topic_read,
        includeSystemTopics="true" if report.system_topics else None,
        groupBy=",".join(grouped_by) or None,
        groupSeconds=str(step_seconds) if grouped_by else None,
    )


def _client_traces(spark: Engine, request: Request, plan: ReadPlan) -> DataFrame:
    """Return the traces of the time; the reading of messages says what of the log is damaged."""
    traces = _load(
        spark,
        request,
        plan,
        columns=request.report.reads,
        topic=names.RMQ_SYS_TRACE_TOPIC,
        includeSystemTopics="true",
        decompress="true",
    )
    return traces.where(F.col(DAMAGE_COLUMN).isNull()).drop(DAMAGE_COLUMN)


def _load(
    spark: Engine,
    request: Request,
    plan: ReadPlan,
    *,
    columns: Sequence[str],
    grouped_by: Sequence[str] = (),
    **options: str | None,
) -> DataFrame:
    given: dict[str, object | None] = {
        "commitLogPath": request.commit_log,
        "startingTimestamp": request.from_ms,
        "endingTimestamp": request.to_ms,
        # The next run reads what is appended after the plan.
        "startingOffset": plan.log_from,
        "endingOffset": plan.log_to,
        "splitBytes": request.split_bytes,
        # What expires meanwhile is a range that the result names.
        "failOnDataLoss": "false",
        **options,
    }
    reader = spark.session.read.format(commitlog.FORMAT).schema(
        messages_with(columns, damage=True, grouped_by=grouped_by)
    )
    for name, value in given.items():
        if value is not None:
            reader = reader.option(name, str(value))
    return reader.load(str(request.store.absolute()))


def _from_brokers(spark: Engine, request: Request) -> DataFrame:
    reader = spark.session.read.format(rocketmq_options.FORMAT)
    schema = messages_with(request.report.reads, damage=True)
    return reader.schema(schema).options(**options_for(request)).load()
