"""A report from what the console's collector sampled, by DuckDB over `bronze.samples`.

The collector writes hours that are over, so the newest rows are up to an hour and some minutes old.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.sql.pandas.types import to_arrow_schema

from analytics import sink
from analytics.errors import ReportError
from analytics.lake.asking import SECONDS_MAX, asking, source_of
from analytics.lake.place import LakePlace
from analytics.lake.rewriting import stored_files_of
from analytics.lake.tables import SAMPLES
from analytics.report_from_lake import ASKING
from analytics.reports.report import step_for
from analytics.reports.totals import totals_of
from analytics.request import moment_of, period_before, span_seconds
from analytics.result import DUCKDB, about
from analytics.store.reader import StoreReader

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from analytics.progress import ProgressLines
    from analytics.request import Request

logger = logging.getLogger(__name__)

NO_LAKE = (
    "This report is made of what the console's collector samples, which a lake keeps, and no lake "
    "is kept here: set TREBUCHET_LAKE=true and start deploy/up again."
)
NO_SAMPLES = (
    "The lake {uri} has no samples yet: the console's collector writes each hour when it has been "
    "over for five minutes, and the lake's process takes it then. `manage.py lake status` says "
    "whether both run."
)
NONE_OF_THE_TIME = (
    "The lake has samples from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC, and none of "
    "the time that was asked for: an hour is there when it has been over for five minutes. Ask for "
    "a longer time."
)


def answer_from_samples(request: Request, lines: ProgressLines) -> None:
    """Make the report and publish it.

    Raises:
        ReportError: there is no lake, or none with samples of the time, or it cannot be read.
    """
    started = time.monotonic()
    lines.progress(ASKING, 0, 1)
    if request.lake is None:
        raise ReportError(NO_LAKE)
    try:
        place = LakePlace.of(request.lake, request.lake_state, os.environ)
        if not SAMPLES.exists(place):
            raise ReportError(NO_SAMPLES.format(uri=place.uri))
        with asking() as connection:
            table, said = _made(connection, place, request)
    except duckdb.InterruptException as error:
        raise ReportError(
            f"The lake did not answer within {SECONDS_MAX:.0f} s: ask for a shorter time."
        ) from error
    except duckdb.OutOfMemoryException as error:
        raise ReportError(
            "The answer needs more memory than DuckDB may have: ask for a shorter time."
        ) from error
    except (duckdb.Error, DeltaError, pa.ArrowException, OSError) as error:
        logger.exception("the lake does not answer")
        reason = str(error).partition("\n")[0].rstrip(".")
        raise ReportError(f"The lake {request.lake} cannot be read: {reason}.") from error
    _publish(request.out, table, said)
    lines.progress(ASKING, 1, 1)
    lines.done(rows=table.num_rows, totals=said["totals"], seconds=time.monotonic() - started)


def rows_from(
    connection: duckdb.DuckDBPyConnection, source: str, request: Request, step_seconds: int
) -> pa.Table:
    """SAMPLES -> the report's rows, of the time and the topic that were asked for."""
    report = request.report
    query = report.samples
    assert query is not None
    values: dict[str, Any] = {"metrics": list(query.metrics)}
    where = ["metric IN (SELECT unnest($metrics))"]
    for name, sign, ms in (("from", ">=", request.from_ms), ("to", "<", request.to_ms)):
        if ms is not None:
            values[name] = moment_of(ms)
            where.append(f"minute {sign} ${name}")
    known = {each.name: request.parameters.get(each.name) for each in report.parameters}
    known["step"] = step_seconds
    values |= {name: value for name, value in known.items() if f"${name}" in query.text}
    rows: pa.Table = connection.sql(
        f"WITH given AS (SELECT * FROM {source} WHERE {' AND '.join(where)}) {query.text}",
        params=values,
    ).to_arrow_table()
    rows = rows.select([column.name for column in report.columns])
    rows = rows.cast(to_arrow_schema(report.schema, timezone="UTC"))
    return rows.sort_by([(name, "ascending") for name in report.sorted_by])


def _made(
    connection: duckdb.DuckDBPyConnection, place: LakePlace, request: Request
) -> tuple[pa.Table, dict[str, Any]]:
    """Return the rows, and what result.json says beside them."""
    opened = SAMPLES.existing(place)
    extent = _extent(connection, place, opened)
    if extent is None:
        raise ReportError(NO_SAMPLES.format(uri=place.uri))
    first, last = extent
    if (request.from_ms is not None and moment_of(request.from_ms) > last) or (
        request.to_ms is not None and moment_of(request.to_ms) <= first
    ):
        raise ReportError(NONE_OF_THE_TIME.format(first=first, last=last))

    def of(asked: Request) -> tuple[pa.Table, int]:
        ends = (asked.from_ms, asked.to_ms)
        days = [None if ms is None else moment_of(ms).date() for ms in ends]
        step = step_for(asked.report, span_seconds(asked, _ms_of(first)))
        source = source_of(connection, place, SAMPLES, opened, *days)
        return rows_from(connection, source, asked, step), step

    table, step = of(request)
    said = {
        **about(request, table, totals_of(request.report, table), step),
        "engine": {"name": DUCKDB, "because": None, "reads": SAMPLES.name},
        "log_stored_from": _lost_before_ms(request),
        "sampled_from": str(_ms_of(first)),
        "sampled_to": str(_ms_of(last)),
    }
    earlier = period_before(request, _ms_of(datetime.now(UTC)))
    if earlier is not None:
        assert earlier.from_ms is not None
        before: dict[str, Any] = {"from": str(earlier.from_ms), "to": str(earlier.to_ms)}
        if earlier.from_ms >= _ms_of(first):
            before["totals"] = totals_of(earlier.report, of(earlier)[0])
        said["before"] = before
    return table, said


def _extent(
    connection: duckdb.DuckDBPyConnection, place: LakePlace, opened: DeltaTable
) -> tuple[datetime, datetime] | None:
    """Return the first and the last minute that the table has, None of an empty one."""
    days = [file.day for file in stored_files_of(opened)]
    if not days:
        return None
    ends = []
    for which, day in (("min", min(days)), ("max", max(days))):
        source = source_of(connection, place, SAMPLES, opened, day, day)
        ((at,),) = connection.execute(f"SELECT epoch_ms({which}(minute)) FROM {source}").fetchall()
        ends.append(moment_of(at))
    return ends[0], ends[1]


def _lost_before_ms(request: Request) -> int | None:
    """Return before when the log has lost its messages, None where it has all, or is not here."""
    try:
        reader = StoreReader(request.store, commit_log_path=request.commit_log)
        return reader.stored_from_ms() if reader.extent()[0] else None
    except ReportError:
        return None


def _ms_of(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _publish(out: Path, table: pa.Table, said: dict[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".run-", dir=out))
    try:
        sink.publish(table, said, work=work, out=out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
