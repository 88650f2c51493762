"""Computes a report: reads the input with a running Spark and returns the result's table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation, functions as F  # noqa: N812 - as in Spark's documentation
from pyspark.sql.pandas.types import to_arrow_schema

from analytics.brokers import options_for
from analytics.facts import facts_of
from analytics.frames import frame_of
from analytics.progress import READING, reading_progress
from analytics.schemas import DAMAGE_COLUMN, MESSAGES_COLUMN, messages_with
from analytics.sources import rocketmq_options
from analytics.sources.rocketmq import RocketMqDataSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from analytics.engine import Engine
    from analytics.inputs import Input
    from analytics.progress import ProgressLines
    from analytics.request import Request


@dataclass(frozen=True, slots=True)
class Outcome:
    """Spark's answer: the result, the number of messages it covers, the damaged ranges."""

    table: pa.Table
    rows_read: int
    damages: list[dict[str, Any]]
    step_seconds: int


def collect(
    spark: Engine,
    request: Request,
    given: Input,
    lines: ProgressLines,
    stage: str = READING,
    *,
    from_brokers: bool = False,
) -> Outcome:
    """Read the input and compute the report.

    Args:
        from_brokers: read the same time range from brokers instead of the log.

    Raises:
        ReportError: the store's configuration isn't readable.
        PySparkException, Py4JError: Spark failed, or was cancelled.
    """
    report = request.report
    spark.begin(report.title)
    observed = Observation("reading")
    if from_brokers:
        read = _from_brokers(spark, request)
    else:
        read = frame_of(spark.session, given.readings, given.schema)
    is_grouped = given.is_grouped and not from_brokers
    rows = F.sum(F.coalesce(MESSAGES_COLUMN, F.lit(1))) if is_grouped else F.count(F.lit(1))
    messages = read.observe(
        observed, rows.alias("rows"), F.collect_list(DAMAGE_COLUMN).alias("damages")
    )
    sound = messages.where(F.col(DAMAGE_COLUMN).isNull()).drop(DAMAGE_COLUMN)
    if report.client_traces:
        # Reading the messages also finds the damaged ranges of the log.
        traces = frame_of(spark.session, given.traces, messages_with(report.reads, damage=True))
        known = traces.where(F.col(DAMAGE_COLUMN).isNull()).drop(DAMAGE_COLUMN)
        sound = sound.unionByName(known, allowMissingColumns=True)
    if report.prepare is not None:
        sound = report.prepare(sound, facts_of(request.store))
    with reading_progress(
        spark, lines, stage, total_bytes=given.plan.split_bytes, tasks=len(given.readings)
    ):
        result = report.transform(sound, request.parameters, given.step_seconds)
        if request.topic != request.topic_read:
            result = result.where(F.col(report.narrowed_by) == F.lit(request.topic))
        table = result.toArrow()
    table = table.cast(to_arrow_schema(report.schema, timezone="UTC"))
    table = table.sort_by([(name, "ascending") for name in report.sorted_by])
    damages = [row.asDict() for row in observed.get["damages"]]
    # A damaged range of a queue has no log offset.
    damages.sort(key=lambda damage: (damage["commit_log_from"] or 0, damage["file"]))
    rows_read = (observed.get["rows"] or 0) - len(damages)
    return Outcome(table, rows_read, damages, given.step_seconds)


def _from_brokers(spark: Engine, request: Request) -> DataFrame:
    spark.session.dataSource.register(RocketMqDataSource)
    reader = spark.session.read.format(rocketmq_options.FORMAT)
    schema = messages_with(request.report.reads, damage=True)
    return reader.schema(schema).options(**options_for(request)).load()
