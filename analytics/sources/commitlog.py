"""The `commitlog` data source of Spark: a store directory as a frame, or a stream, of messages.

    spark.read.format("commitlog").schema(messages_with(["topic", "store_size"])).load(store)
    spark.readStream.format("commitlog").option("startingOffset", "earliest").load(store)

The schema that is asked for decides what is decoded (the Python data source interface prunes no
columns); without one it is MESSAGES. Only options narrow what is read, never a filter: Spark 4.2
and 4.3 share one read plan between all uses of a frame, so a filter that was pushed down for one
would hold for the others. All options but the path may be left out:

    path                 the store directory (storePathRootDir), ours or the original's
    commitLogPath        storePathCommitLog, when the broker's configuration sets it
    topic                topics, with commas between them; read through their ConsumeQueues where
                         that is less than reading the log
    queue                queue ids, with commas between them
    startingTimestamp    stored at or after, ms since epoch
    endingTimestamp      stored before
    startingOffset       commit log offset: earliest, latest, or the number of one where a record
                         starts. A frame begins at the earliest, a stream at the latest
    endingOffset         commit log offset, not included: latest, or the log_to of a plan
    maxBytesPerTrigger   how much of the log one batch of a stream takes
    includeSystemTopics  false; true shows what the broker keeps for itself, too: half messages,
                         deferred messages, traces
    decompress           false; true yields bodies as they were before compression
    splitBytes           how much of the log one task reads
    checkCrc             body: a body whose checksum is wrong is null. true: such a record is
                         damage, with or without a body column. false: no checksum is computed
    failOnDataLoss       true: reading fails when files have expired since it was planned, when one
                         is missing, or when the log ends before a stream's own progress. false:
                         what is gone is damage
    groupBy              columns, with commas between them: messages that are alike in these are
                         told as one row, or as a few. `messages` says how many it stands for,
                         store_size and body_size are their sums; there are no other columns
    groupSeconds         60; times that are grouped by are cut down to so many seconds

A damaged range is logged and stepped over; a schema with the column `damage` has a row for it. How
many rows there are depends on the options only, never on the columns.

Source: pyspark.sql.datasource (4.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from analytics.errors import DataLossError, ReportError
from analytics.schemas import MESSAGES
from analytics.sources.options import Options
from analytics.sources.shape import arrow_schema_of
from analytics.store.decode import CheckCrc, RowFilter
from analytics.store.grouping import GROUPABLE, Grouping
from analytics.store.plan import SPLIT_BYTES_DEFAULT
from analytics.store.reader import StoreReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from analytics.store.plan import ReadPlan, Share

FORMAT = "commitlog"
OPTIONS = (
    "path",
    "commitLogPath",
    "topic",
    "queue",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffset",
    "endingOffset",
    "maxBytesPerTrigger",
    "includeSystemTopics",
    "decompress",
    "splitBytes",
    "checkCrc",
    "failOnDataLoss",
    "groupBy",
    "groupSeconds",
)
GROUP_SECONDS_DEFAULT = 60
EARLIEST, LATEST = "earliest", "latest"
OFFSET = "commit_log_offset"
QUEUE_ID_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options with their types; an offset is None for the end of the log on its side."""

    path: Path
    commit_log_path: Path | None
    rows: RowFilter
    starting_offset: int | str | None
    ending_offset: int | None
    max_bytes_per_trigger: int | None
    decompress: bool
    split_bytes: int
    check_crc: CheckCrc
    fail_on_data_loss: bool
    grouping: Grouping | None

    def store(self) -> StoreReader:
        return StoreReader(
            self.path, commit_log_path=self.commit_log_path, split_bytes=self.split_bytes
        )

    def plan(self, from_offset: int | None, to_offset: int | None) -> ReadPlan:
        return self.store().plan(
            from_ms=self.rows.from_ms,
            to_ms=self.rows.to_ms,
            from_offset=from_offset,
            to_offset=to_offset,
            topics=self.rows.topics,
            queue_ids=self.rows.queue_ids,
        )


class CommitLogDataSource(DataSource):
    """Checks the options and makes the readers. Spark calls it."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._wanted = parse_options(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return MESSAGES

    def reader(self, schema: StructType) -> DataSourceReader:
        return CommitLogReader(self._wanted, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        return CommitLogStreamReader(self._wanted, schema)


class SharePartition(InputPartition):
    """One task's share of the log."""

    def __init__(self, share: Share) -> None:
        super().__init__(share)


class _ShareReader:
    """Reads shares, in any process: holds options only, no files."""

    def __init__(self, wanted: Wanted, schema: StructType) -> None:
        self._wanted = wanted
        self._schema = schema
        self._arrow_schema()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        grouping, schema = self._wanted.grouping, self._arrow_schema()
        if grouping is None:
            return self._rows(partition.value, schema)
        rows = self._rows(partition.value, grouping.read_schema(schema))
        return grouping.grouped(rows, schema)

    def _arrow_schema(self) -> pa.Schema:
        grouping = self._wanted.grouping
        return arrow_schema_of(FORMAT, self._schema, None if grouping is None else grouping.types())

    def _rows(self, share: Share, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        wanted = self._wanted
        store = wanted.store()
        for part in share:
            yield from store.read(
                part,
                schema,
                wanted.rows,
                check_crc=wanted.check_crc,
                decompress=wanted.decompress,
                fail_on_data_loss=wanted.fail_on_data_loss,
            )

    def _shares(self, from_offset: int | None, to_offset: int | None) -> list[InputPartition]:
        plan = self._wanted.plan(from_offset, to_offset)
        return [SharePartition(share) for share in plan.shares(self._wanted.split_bytes)]


class CommitLogReader(_ShareReader, DataSourceReader):
    """Plans and reads a frame."""

    def partitions(self) -> Sequence[InputPartition]:
        wanted = self._wanted
        starting = wanted.starting_offset
        if starting == LATEST:
            return [SharePartition(())]
        from_offset = starting if isinstance(starting, int) else None
        # Without a partition Spark would read one of its own.
        return self._shares(from_offset, wanted.ending_offset) or [SharePartition(())]


class CommitLogStreamReader(_ShareReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the log. An offset of the stream is {"commit_log_offset": where the next one starts}.

    Lives in one process for the whole query, besides the reading of shares.
    """

    def __init__(self, wanted: Wanted, schema: StructType) -> None:
        if wanted.ending_offset is not None or wanted.rows.to_ms is not None:
            raise ReportError(
                "A stream of commitlog has no end: leave out endingOffset and endingTimestamp."
            )
        super().__init__(wanted, schema)
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        wanted = self._wanted
        starting = wanted.starting_offset
        if isinstance(starting, int):
            return {OFFSET: starting}
        plan = wanted.store().plan(from_ms=wanted.rows.from_ms)
        if starting == LATEST or (starting is None and wanted.rows.from_ms is None):
            return {OFFSET: plan.log_to}
        splits = plan.splits
        return {OFFSET: splits[0].commit_log_from if splits else plan.log_to}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._wanted.max_bytes_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        begun = start[OFFSET]
        store = self._wanted.store()
        first, last = store.extent()
        if last < begun and self._wanted.fail_on_data_loss:
            raise DataLossError(
                f"The log at {self._wanted.path} ends at {last}, before {begun}, where this stream "
                "stands: it is another log, or it lost its end. With the option "
                "failOnDataLoss=false the stream waits until the log is there again."
            )
        if last < begun:
            return start
        end = store.end_from(max(begun, first), most)
        if self._target is not None:
            end = min(end, self._target)
        return {OFFSET: max(begun, end)}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {OFFSET: self._wanted.store().plan().log_to}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._wanted.store().plan().log_to

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        if end[OFFSET] <= start[OFFSET]:
            return []
        return self._shares(start[OFFSET], end[OFFSET])


def parse_options(given: Mapping[str, str]) -> Wanted:
    """Return the options with their types and defaults.

    Raises:
        ReportError: one is unknown, missing, or not what it must be.
    """
    options = Options(FORMAT, OPTIONS, given)
    if not options.text("path"):
        raise ReportError("commitlog needs the option path: the store directory.")
    elsewhere = options.text("commitLogPath")
    return Wanted(
        path=Path(options.text("path")),
        commit_log_path=Path(elsewhere) if elsewhere else None,
        rows=RowFilter(
            topics=options.topics("topic"),
            queue_ids=_queue_ids(options),
            include_system_topics=options.truth("includeSystemTopics", default=False),
            from_ms=options.number("startingTimestamp"),
            to_ms=options.number("endingTimestamp"),
        ),
        starting_offset=_starting_offset(options),
        ending_offset=_ending_offset(options),
        max_bytes_per_trigger=options.number("maxBytesPerTrigger", least=1),
        decompress=options.truth("decompress", default=False),
        split_bytes=options.number("splitBytes", least=1) or SPLIT_BYTES_DEFAULT,
        check_crc=CheckCrc(options.one_of("checkCrc", [each.value for each in CheckCrc])),
        fail_on_data_loss=options.truth("failOnDataLoss", default=True),
        grouping=_grouping(options),
    )


def _grouping(options: Options) -> Grouping | None:
    if "groupBy" not in options:
        if "groupSeconds" in options:
            raise ReportError("commitlog's option groupSeconds is of use with groupBy only.")
        return None
    by = tuple(dict.fromkeys(part.strip() for part in options.text("groupBy").split(",")))
    if not set(by) <= set(GROUPABLE):
        raise options.refused(
            "groupBy", f"columns with commas between them, of {', '.join(GROUPABLE)}"
        )
    seconds = options.number("groupSeconds", least=1) or GROUP_SECONDS_DEFAULT
    return Grouping(by, seconds * 1_000_000)


def _starting_offset(options: Options) -> int | str | None:
    text = options.text("startingOffset").lower()
    if text in (EARLIEST, LATEST):
        return text
    if text and not text.isdecimal():
        raise options.refused("startingOffset", "earliest, latest or a whole number")
    return options.number("startingOffset")


def _ending_offset(options: Options) -> int | None:
    text = options.text("endingOffset").lower()
    if text and text != LATEST and not text.isdecimal():
        raise options.refused("endingOffset", "latest or a whole number")
    return None if text == LATEST else options.number("endingOffset")


def _queue_ids(options: Options) -> frozenset[int] | None:
    if "queue" not in options:
        return None
    parts = [part.strip() for part in options.text("queue").split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) <= QUEUE_ID_MAX for part in parts):
        raise options.refused("queue", "queue ids with commas between them")
    return frozenset(map(int, parts))
