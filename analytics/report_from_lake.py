"""A report from the lake, by DuckDB: in a second what Spark takes many for, with equal numbers.

The lake answers up to its watermark; what the log has behind it is decoded here and counted with
it. Whatever the lake may not answer exactly is refused with a sentence, and Spark reads the log:
a range with a gap, a log that is not the one that the lake knows, too much that is not in the lake.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.sql.pandas.types import to_arrow_schema

from analytics import sink
from analytics.errors import ReportError
from analytics.lake.asking import SECONDS_MAX, asking, dataset_of, source_of
from analytics.lake.gold import STATE
from analytics.lake.gold_tables import GOLD
from analytics.lake.place import LakePlace
from analytics.lake.rewriting import stored_files_of
from analytics.lake.status import broker_of
from analytics.lake.tables import GAPS, MESSAGES
from analytics.lake.watermark import Watermark
from analytics.reports.report import TOPIC, gettext_noop, step_for
from analytics.reports.totals import totals_of
from analytics.request import MS_A_MINUTE, moment_of, period_before, span_seconds
from analytics.result import DUCKDB, about
from analytics.store.decode import COLUMN_TYPES, DAMAGE_TYPE, RowFilter
from analytics.store.fingerprint import NO_FINGERPRINT, fingerprint_before
from analytics.store.reader import StoreReader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from deltalake import DeltaTable

    from analytics.lake.gold_tables import GoldTable
    from analytics.lake.tables import LakeTable
    from analytics.progress import ProgressLines
    from analytics.reports.report import LakeQuery, Value
    from analytics.request import Request
    from analytics.store.plan import ReadPlan

logger = logging.getLogger(__name__)

ASKING = "asking"
# Decoded in some tenths of a second; the lake's process lets no more gather while it runs.
TAIL_BYTES_MAX = 128 * 1024 * 1024
TAIL = "tail"


class RefusedError(Exception):
    """The lake does not answer; the text is a sentence with places for its figures."""

    def __init__(self, text: str, **figures: tuple[Value, str]) -> None:
        super().__init__(text)
        self.finding: dict[str, Any] = {
            "text": text,
            "figures": {
                name: {"value": str(value), "unit": unit} for name, (value, unit) in figures.items()
            },
        }


def answer(request: Request, lines: ProgressLines) -> dict[str, Any] | None:
    """Make the report and publish it; return None, or as a finding why Spark must."""
    try:
        _LakeAnswer(request, lines).make()
    except RefusedError as refused:
        return refused.finding
    except (ReportError, duckdb.Error, DeltaError, pa.ArrowException, OSError) as error:
        logger.exception("the lake does not answer")
        reason = str(error).partition("\n")[0].rstrip(".")
        return RefusedError(
            gettext_noop("The lake cannot be read: %(reason)s."), reason=(reason, "")
        ).finding
    return None


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """A table of the lake as it is now, and up to where of the log its rows are."""

    table: LakeTable
    opened: DeltaTable
    watermark: Watermark
    gold: GoldTable | None

    @property
    def time_column(self) -> str:
        return "store_timestamp" if self.gold is None else "minute"


class _LakeAnswer:
    """One report. One thread."""

    def __init__(self, request: Request, lines: ProgressLines) -> None:
        self._request = request
        self._lines = lines
        self._started = time.monotonic()
        query = request.report.lake
        if query is None:
            raise RefusedError(gettext_noop("The lake does not have what this report needs."))
        if request.from_ms is None:
            raise RefusedError(
                gettext_noop("Everything in the log was asked for, and the lake may hold more.")
            )
        if any((each or 0) % MS_A_MINUTE for each in (request.from_ms, request.to_ms)):
            raise RefusedError(gettext_noop("The lake counts by whole minutes."))
        self._query: LakeQuery = query
        self._from_ms: int = request.from_ms
        self._before = period_before(request, int(datetime.now(UTC).timestamp() * 1000))
        assert request.lake is not None
        self._place = LakePlace.of(request.lake, request.lake_state, os.environ)
        self._broker = broker_of(self._place, os.environ)
        self._reader = StoreReader(request.store, commit_log_path=request.commit_log)

    def make(self) -> None:
        """Ask the lake and publish.

        Raises:
            RefusedError: it cannot say exactly.
        """
        request, report = self._request, self._request.report
        self._lines.progress(ASKING, 0, 1)
        found = self._snapshot()
        self._require_no_gap()
        plan = self._tail_plan(found)
        with asking() as connection:
            try:
                self._give_tail(connection, found, plan)
                first_ms = self._first_ms(connection, found)
                step = step_for(report, span_seconds(request, first_ms))
                table = self._asked(connection, found, request, step)
                before = self._period_before(connection, found, first_ms, plan)
            except duckdb.InterruptException as error:
                raise RefusedError(
                    gettext_noop("The lake did not answer within %(seconds)s s."),
                    seconds=(int(SECONDS_MAX), ""),
                ) from error
            except duckdb.OutOfMemoryException as error:
                raise RefusedError(
                    gettext_noop("The answer needs more memory than DuckDB may have.")
                ) from error
        totals = totals_of(report, table)
        said = {
            **about(request, table, totals, step),
            "engine": {"name": DUCKDB, "because": None},
            "log_stored_from": self._lost_before_ms(),
            "log_from": str(plan.log_from),
            "log_to": str(plan.log_to),
            "read_bytes": str(plan.split_bytes),
            "skipped_bytes": "0",
            "damaged_ranges": 0,
            "damaged_bytes": "0",
            "damaged": [],
            **before,
        }
        self._publish(table, said)
        self._lines.progress(ASKING, 1, 1)
        seconds = time.monotonic() - self._started
        self._lines.done(rows=table.num_rows, totals=totals, seconds=seconds)

    def _lost_before_ms(self) -> int | None:
        """Return before when messages are in the lake alone, None where the log has lost none."""
        first, _ = self._reader.extent()
        return self._reader.stored_from_ms() if first else None

    def _snapshot(self) -> _Snapshot:
        place, name = self._place, self._query.table
        if not MESSAGES.exists(place):
            raise RefusedError(gettext_noop("The lake has no message yet."))
        bronze = MESSAGES.existing(place)
        gold = next((each for each in GOLD if each.table.name == name), None)
        opened, table = bronze, MESSAGES
        if gold is not None:
            table = gold.table
            counted = None
            if table.exists(place):
                opened = table.existing(place)
                counted = opened.transaction_version(STATE)
            if counted is None:
                raise RefusedError(gettext_noop("The lake has not counted its messages yet."))
            bronze.load_as_version(counted)
        watermark = Watermark.of(bronze, self._broker)
        if watermark is None:
            raise RefusedError(
                gettext_noop("The lake has no message of %(broker)s yet."),
                broker=(self._broker, ""),
            )
        return _Snapshot(table, opened, watermark, gold)

    def _require_no_gap(self) -> None:
        """Refuse where messages of the time may be missing: a gap is older than its discovery."""
        if not GAPS.exists(self._place):
            return
        earliest = self._from_ms if self._before is None else self._before.from_ms
        since = pa.scalar(earliest, pa.timestamp("ms", tz="UTC"))
        gaps = dataset_of(self._place, GAPS, GAPS.existing(self._place)).to_table(
            ["broker", "found_at"]
        )
        rows = zip(gaps["broker"].to_pylist(), gaps["found_at"].to_pylist(), strict=True)
        if any(broker == self._broker and at >= since.as_py() for broker, at in rows):
            raise RefusedError(
                gettext_noop("The lake has gaps that may be in this time: see bronze.gaps.")
            )

    def _tail_plan(self, found: _Snapshot) -> ReadPlan:
        """Plan the reading of what the log has behind the lake."""
        watermark, (first, _) = found.watermark, self._reader.extent()
        if first > watermark.offset:
            raise RefusedError(gettext_noop("The log begins behind what the lake has read of it."))
        if (
            watermark.fingerprint
            not in (
                NO_FINGERPRINT,
                fingerprint_before(self._reader.files(), watermark.offset) or watermark.fingerprint,
            )
            or self._reader.end(watermark.offset) < watermark.offset
        ):
            raise RefusedError(gettext_noop("The log is not the one that the lake has read."))
        end = self._reader.end_from(watermark.offset)
        if end - watermark.offset > TAIL_BYTES_MAX:
            raise RefusedError(
                gettext_noop("%(bytes)s of the log are not in the lake yet."),
                bytes=(end - watermark.offset, "bytes"),
            )
        return self._reader.plan(from_offset=watermark.offset, to_offset=end)

    def _give_tail(
        self, connection: duckdb.DuckDBPyConnection, found: _Snapshot, plan: ReadPlan
    ) -> None:
        """Make rows of the lake's table of what it does not have yet, as TAIL."""
        reads = self._request.report.reads if found.gold is None else found.gold.reads
        names = [
            name for name in dict.fromkeys((*reads, "store_timestamp")) if name in COLUMN_TYPES
        ]
        fields = [pa.field(name, COLUMN_TYPES[name]) for name in names]
        schema = pa.schema([*fields, pa.field("damage", DAMAGE_TYPE)])
        batches = []
        for part in plan.parts:
            for batch in self._reader.read(part, schema, RowFilter(), fail_on_data_loss=False):
                if batch.column("damage").null_count < batch.num_rows:
                    raise RefusedError(
                        gettext_noop("The newest part of the log is damaged, and not in the lake.")
                    )
                batches.append(batch.drop_columns(["damage"]))
        rows = pa.Table.from_batches(batches, pa.schema(fields))
        days = rows["store_timestamp"].cast(pa.date32())
        rows = rows.append_column("day", days)
        rows = rows.append_column("broker", pa.repeat(self._broker, rows.num_rows))
        if found.gold is not None:
            connection.register("given", rows)
            counted = connection.sql(found.gold.counted).to_arrow_table()
            connection.unregister("given")
            rows = counted.select(found.table.schema.names).cast(found.table.schema)
        connection.register(TAIL, rows)

    def _first_ms(self, connection: duckdb.DuckDBPyConnection, found: _Snapshot) -> int | None:
        """Return when the first message of the lake or the log was stored, None without any."""
        days = [file.day for file in stored_files_of(found.opened)]
        first = min(days) if days else None
        files = self._source(connection, found, first, first)
        column = found.time_column
        rows = connection.execute(
            f"SELECT epoch_ms(min({column})) FROM ("
            f"SELECT {column} FROM {files} WHERE broker = $broker UNION ALL "
            f"SELECT {column} FROM {TAIL})",
            {"broker": self._broker},
        ).fetchall()
        return None if not rows else rows[0][0]

    def _asked(
        self,
        connection: duckdb.DuckDBPyConnection,
        found: _Snapshot,
        request: Request,
        step_seconds: int,
    ) -> pa.Table:
        """Return the result's rows for a time."""
        assert request.from_ms is not None
        topic = request.parameters.get(TOPIC.name)
        values: dict[str, Any] = {"broker": self._broker, "from": moment_of(request.from_ms)}
        where = [f"broker = $broker AND {found.time_column} >= $from"]
        if request.to_ms is not None:
            values["to"] = moment_of(request.to_ms)
            where.append(f"{found.time_column} < $to")
        if topic is not None:
            values["topic"] = topic
            where.append("topic = $topic")
        text = self._query.text
        known = {"step": step_seconds, **self._query.values, **request.parameters}
        values |= {name: value for name, value in known.items() if f"${name}" in text}
        last = None if request.to_ms is None else moment_of(request.to_ms).date()
        source = self._source(connection, found, moment_of(request.from_ms).date(), last)
        names = ", ".join(
            dict.fromkeys(("broker", "topic", found.time_column, *self._columns(found)))
        )
        condition = " AND ".join(where)
        rows: pa.Table = connection.sql(
            f"WITH given AS (SELECT {names} FROM {source} WHERE {condition} UNION ALL "
            f"SELECT {names} FROM {TAIL} WHERE {condition}) SELECT * FROM ({text})",
            params=values,
        ).to_arrow_table()
        report = request.report
        rows = rows.select([column.name for column in report.columns])
        rows = rows.cast(to_arrow_schema(report.schema, timezone="UTC"))
        return rows.sort_by([(name, "ascending") for name in report.sorted_by])

    def _columns(self, found: _Snapshot) -> Sequence[str]:
        if found.gold is None:
            return self._request.report.reads
        return [name for name in found.table.schema.names if name != "day"]

    def _source(
        self,
        connection: duckdb.DuckDBPyConnection,
        found: _Snapshot,
        first: date | None,
        last: date | None,
    ) -> str:
        """Return what SQL reads the table's rows of some days from."""
        return source_of(connection, self._place, found.table, found.opened, first, last)

    def _period_before(
        self,
        connection: duckdb.DuckDBPyConnection,
        found: _Snapshot,
        first_ms: int | None,
        plan: ReadPlan,
    ) -> dict[str, Any]:
        """Return the totals of the period before, as Spark's run does."""
        earlier = self._before
        if earlier is None:
            return {}
        assert earlier.from_ms is not None
        before: dict[str, Any] = {"from": str(earlier.from_ms), "to": str(earlier.to_ms)}
        expired = self._reader.extent()[0] > 0
        if expired and (first_ms is None or first_ms > earlier.from_ms):
            return {"before": before}
        step = step_for(earlier.report, span_seconds(earlier, first_ms))
        table = self._asked(connection, found, earlier, step)
        return {"before": before | {"totals": totals_of(earlier.report, table)}}

    def _publish(self, table: pa.Table, said: dict[str, Any]) -> None:
        out = self._request.out
        out.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".run-", dir=out))
        try:
            sink.publish(table, said, work=work, out=out)
        finally:
            shutil.rmtree(work, ignore_errors=True)
