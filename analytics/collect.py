"""The reading of a report: from a plan and a running Spark to the result's table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation, functions as F  # noqa: N812 - as in Spark's documentation
from pyspark.sql.pandas.types import to_arrow_schema

from analytics.facts import facts_of
from analytics.progress import READING, reading_followed
from analytics.reports.report import step_for
from analytics.request import span_seconds
from analytics.schemas import DAMAGE_COLUMN, messages_with
from analytics.session import require_executor
from analytics.sources.commitlog import FORMAT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from analytics.progress import ProgressLines
    from analytics.request import Request
    from analytics.session import Spark
    from analytics.store.plan import ReadPlan

JOB_GROUP = "trebuchet-report"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Spark's answer: the result, the number of messages behind it, the damaged ranges."""

    table: pa.Table
    rows_read: int
    damages: list[dict[str, Any]]
    step_seconds: int


def collect(
    spark: Spark, request: Request, plan: ReadPlan, lines: ProgressLines, stage: str = READING
) -> Outcome:
    """Read what is planned and compute the report; the job group is JOB_GROUP.

    Raises:
        ReportError: no worker of a cluster takes the work, or the store's configuration cannot
            be understood.
        PySparkException, Py4JError: Spark failed, or was cancelled.
    """
    report = request.report
    require_executor(spark, request.master)
    spark.session.sparkContext.setJobGroup(JOB_GROUP, report.title, interruptOnCancel=True)
    observed = Observation("reading")
    messages = _messages(spark, request, plan).observe(
        observed,
        F.count(F.lit(1)).alias("rows"),
        F.collect_list(DAMAGE_COLUMN).alias("damages"),
    )
    sound = messages.where(F.col(DAMAGE_COLUMN).isNull()).drop(DAMAGE_COLUMN)
    if report.prepare is not None:
        sound = report.prepare(sound, facts_of(request.store))
    step_seconds = step_for(report, span_seconds(request, plan.stored_from_ms))
    with reading_followed(
        spark,
        JOB_GROUP,
        lines,
        stage,
        total_bytes=plan.split_bytes,
        tasks=len(plan.shares(request.split_bytes)),
    ):
        table = report.transform(sound, request.parameters, step_seconds).toArrow()
    table = table.cast(to_arrow_schema(report.schema, timezone="UTC"))
    table = table.sort_by([(name, "ascending") for name in report.sorted_by])
    damages = [row.asDict() for row in observed.get["damages"]]
    damages.sort(key=lambda damage: damage["commit_log_from"])
    return Outcome(table, observed.get["rows"] - len(damages), damages, step_seconds)


def _messages(spark: Spark, request: Request, plan: ReadPlan) -> DataFrame:
    options = {
        "commitLogPath": request.commit_log,
        "startingTimestamp": request.from_ms,
        "endingTimestamp": request.to_ms,
        "topic": request.parameters.get("topic"),
        # The next run reads what is appended after the plan.
        "startingOffset": plan.log_from,
        "endingOffset": plan.log_to,
        "splitBytes": request.split_bytes,
        "includeSystemTopics": "true" if request.report.system_topics else None,
        # What expires meanwhile is a range that the result names.
        "failOnDataLoss": "false",
    }
    reader = spark.session.read.format(FORMAT).schema(
        messages_with(request.report.reads, damage=True)
    )
    for name, value in options.items():
        if value is not None:
            reader = reader.option(name, str(value))
    return reader.load(str(request.store.absolute()))
