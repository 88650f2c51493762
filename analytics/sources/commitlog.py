"""The `commitlog` data source of Spark: a store directory as a frame, or a stream, of messages.

    spark.read.format("commitlog").schema(messages_with(["topic", "store_size"])).load(store)
    spark.readStream.format("commitlog").option("startingOffset", "earliest").load(store)

The requested schema decides which columns are decoded (the Python data source interface doesn't
prune columns); the default is MESSAGES. Only options limit the rows that are read, never filters:
Spark 4.2 and 4.3 share one read plan between all uses of a frame, so a filter pushed down for one
use would apply to the others. All options except the path are optional:

    path                 the store directory (storePathRootDir) of Trebuchet or RocketMQ
    commitLogPath        storePathCommitLog, if the broker's configuration sets it
    topic                topics, separated by commas; read through their ConsumeQueues if that is
                         cheaper than reading the log
    queue                queue IDs, separated by commas
    startingTimestamp    stored at or after, ms since epoch
    endingTimestamp      stored before
    startingOffset       commit log offset: earliest, latest, or the offset of a record. A frame
                         begins at the earliest, a stream at the latest
    endingOffset         commit log offset, exclusive: latest, or the log_to of a plan
    maxBytesPerTrigger   how much of the log one batch of a stream reads
    includeSystemTopics  false; true includes the broker's internal messages: half messages,
                         deferred messages, traces
    decompress           false; true yields decompressed bodies
    splitBytes           how much of the log one task reads
    checkCrc             body: a body whose checksum is wrong is null. true: such a record is
                         damage, with or without a body column. false: no checksum is computed
    failOnDataLoss       true: reading fails if files have expired since it was planned, if one is
                         missing, or if the log ends before a stream's own progress. false:
                         missing data is damage
    mode                 FAILFAST: reading fails at a damaged range, and at an unreadable body.
                         PERMISSIVE: the range is skipped and logged, the body is null.
                         FAILFAST by default, PERMISSIVE if the schema has the column `damage`
    groupBy              columns, separated by commas: messages that agree in these are combined
                         into one row, or a few. `messages` is their number, store_size and
                         body_size are their sums; other columns aren't available
    groupSeconds         60; grouped times are rounded down to a multiple of this

If the schema has the column `damage`, each range that isn't readable is a row. The number of
messages depends only on the options, never on the columns.

Source: pyspark.sql.datasource (4.3).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from analytics.sources.options import Mode, Options, mode_for
from analytics.sources.shape import arrow_schema_of
from analytics.store.decode import CheckCrc, RowFilter
from analytics.store.fingerprint import fingerprint_before
from analytics.store.grouping import GROUPABLE, Grouping
from analytics.store.plan import SPLIT_BYTES_DEFAULT
from analytics.store.reader import StoreReader
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from analytics.store.plan import ReadPlan, Share

logger = logging.getLogger(__name__)

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
    "mode",
    "groupBy",
    "groupSeconds",
)
GROUP_SECONDS_DEFAULT = 60
EARLIEST, LATEST = "earliest", "latest"
OFFSET, FINGERPRINT = "commit_log_offset", "fingerprint"
QUEUE_ID_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class CommitLogOptions:
    """The options with their types; an offset of None means the beginning or the end of the log."""

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
    mode: Mode | None
    grouping: Grouping | None

    def store(self) -> StoreReader:
        return StoreReader(
            self.path, commit_log_path=self.commit_log_path, split_bytes=self.split_bytes
        )

    def require_topics(self) -> None:
        """Check that the store has the topics and queues in the options.

        Raises:
            ReportError: a topic or queue doesn't exist.
        """
        topics, queue_ids = self.rows.topics, self.rows.queue_ids
        if topics is None and queue_ids is None:
            return
        known = self.store().topics()
        if known is None:
            return  # a copy of only the log
        for topic in sorted(topics or ()):
            if topic not in known and not names.is_system_topic(topic):
                raise ReportError(
                    f"The store {self.path} has no topic {topic}. The log may still contain "
                    "messages of a deleted topic; to read them, remove the option topic and "
                    "filter the rows."
                )
        most = max((known.get(topic, 0) for topic in topics or known), default=0)
        for queue_id in sorted(queue_ids or ()):
            if queue_id >= most and not any(map(names.is_system_topic, topics or ())):
                of = ", ".join(sorted(topics)) if topics else "any topic"
                raise ReportError(
                    f"The store {self.path} has no queue {queue_id} of {of}; the highest queue "
                    f"id is {most - 1}."
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
    """Checks the options and creates the readers. Spark calls it."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = parse_options(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return MESSAGES

    def reader(self, schema: StructType) -> DataSourceReader:
        return CommitLogReader(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        return CommitLogStreamReader(self._options, schema)


class SharePartition(InputPartition):
    """One task's share of the log."""

    def __init__(self, share: Share) -> None:
        super().__init__(share)


class _ShareReader:
    """Reads shares, in any process: holds only options, no files."""

    def __init__(self, wanted: CommitLogOptions, schema: StructType) -> None:
        self._options = wanted
        self._schema = schema
        self._arrow_schema()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        grouping, schema = self._options.grouping, self._arrow_schema()
        if grouping is None:
            return self._rows(partition.value, schema)
        rows = self._rows(partition.value, grouping.read_schema(schema))
        return grouping.grouped(rows, schema)

    def _arrow_schema(self) -> pa.Schema:
        grouping = self._options.grouping
        return arrow_schema_of(FORMAT, self._schema, None if grouping is None else grouping.types())

    def _rows(self, share: Share, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        wanted = self._options
        store = wanted.store()
        for part in share:
            yield from store.read(
                part,
                schema,
                wanted.rows,
                check_crc=wanted.check_crc,
                decompress=wanted.decompress,
                fail_on_data_loss=wanted.fail_on_data_loss,
                fail_on_damage=mode_for(wanted.mode, self._schema) is Mode.FAILFAST,
            )

    def _shares(self, from_offset: int | None, to_offset: int | None) -> list[InputPartition]:
        plan = self._options.plan(from_offset, to_offset)
        return [SharePartition(share) for share in plan.shares(self._options.split_bytes)]


class CommitLogReader(_ShareReader, DataSourceReader):
    """Plans and reads a frame."""

    def partitions(self) -> Sequence[InputPartition]:
        wanted = self._options
        wanted.require_topics()
        starting = wanted.starting_offset
        if starting == LATEST:
            return [SharePartition(())]
        from_offset = starting if isinstance(starting, int) else None
        # Spark adds a default partition if the list is empty.
        return self._shares(from_offset, wanted.ending_offset) or [SharePartition(())]


class CommitLogStreamReader(_ShareReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the log.

    An offset of the stream is {"commit_log_offset": N, "fingerprint": F}: where the next batch
    begins, and a hash of the bytes before it, which reveals a different log. Lives in one process
    for the whole query, except for reading shares.
    """

    def __init__(self, wanted: CommitLogOptions, schema: StructType) -> None:
        if wanted.ending_offset is not None or wanted.rows.to_ms is not None:
            raise ReportError(
                "A stream of commitlog has no end. Remove endingOffset and endingTimestamp."
            )
        super().__init__(wanted, schema)
        self._target: int | None = None
        self._planned: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        self._options.require_topics()
        return self._progress(self._first_offset())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        begun = start[OFFSET]
        store = self._options.store()
        first, last = store.extent()
        self._planned = start
        if last < begun:
            self._lost(f"The log at {self._options.path} ends at {last}, before {begun}")
            return start
        self._require_same(start)
        end = store.end_from(max(begun, first), most)
        if self._target is not None:
            end = min(end, self._target)
        if end > begun:
            self._planned = self._progress(end)
        return self._planned

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        begun = self._planned[OFFSET] if self._planned else 0
        end = max(begun, self._options.store().end(begun))
        return {OFFSET: end, "metrics": {"bytesBehindLatest": end - begun}}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._options.store().plan().log_to

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        if end[OFFSET] <= start[OFFSET]:
            return []
        if end != self._planned:
            # This may repeat a batch of an earlier run, and the log may have been replaced since.
            self._require_same(end)
        return self._shares(start[OFFSET], end[OFFSET])

    def _first_offset(self) -> int:
        wanted = self._options
        starting = wanted.starting_offset
        if isinstance(starting, int):
            return starting
        plan = wanted.store().plan(from_ms=wanted.rows.from_ms)
        if starting == LATEST or (starting is None and wanted.rows.from_ms is None):
            return plan.log_to
        return plan.splits[0].commit_log_from if plan.splits else plan.log_to

    def _progress(self, offset: int) -> dict[str, int]:
        found = fingerprint_before(self._options.store().files(), offset)
        return {OFFSET: offset, **({FINGERPRINT: found} if found else {})}

    def _require_same(self, progress: dict[str, int]) -> None:
        """Check that the bytes before an offset are the bytes that this stream has read.

        Raises:
            DataLossError: the bytes differ, and failOnDataLoss is set.
        """
        recorded = progress.get(FINGERPRINT)
        found = fingerprint_before(self._options.store().files(), progress[OFFSET])
        # Expired or unreachable bytes have no fingerprint.
        if recorded and found and recorded != found:
            self._lost(
                f"The log at {self._options.path} has other messages before {progress[OFFSET]} "
                "than this stream has read"
            )

    def _lost(self, what: str) -> None:
        sentence = (
            f"{what}. It's another log, or it lost its end. Start the query with a new "
            "checkpoint, or set failOnDataLoss=false to continue at that offset."
        )
        if self._options.fail_on_data_loss:
            raise DataLossError(sentence)
        logger.warning("messages lost reason=%s", sentence)


def parse_options(given: Mapping[str, str]) -> CommitLogOptions:
    """Return the options with their types and defaults.

    Raises:
        ReportError: an option is unknown, missing or not valid.
    """
    options = Options(FORMAT, OPTIONS, given)
    if not options.text("path"):
        raise ReportError("commitlog needs the option path. Set it to the store directory.")
    elsewhere = options.text("commitLogPath")
    return CommitLogOptions(
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
        mode=options.mode(),
        grouping=_grouping(options),
    )


def _grouping(options: Options) -> Grouping | None:
    if "groupBy" not in options:
        if "groupSeconds" in options:
            raise ReportError("commitlog's option groupSeconds requires groupBy.")
        return None
    by = tuple(dict.fromkeys(part.strip() for part in options.text("groupBy").split(",")))
    if not set(by) <= set(GROUPABLE):
        raise options.refused(
            "groupBy", f"columns separated by commas, from {', '.join(GROUPABLE)}"
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
        raise options.refused("queue", "queue ids separated by commas")
    return frozenset(map(int, parts))
