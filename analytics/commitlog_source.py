"""The `commitlog` data source of Spark: a store directory as a frame of messages.

    spark.read.format("commitlog").schema(messages_with(["topic", "store_size"])).load(store)

The schema that is asked for decides what is decoded (the Python data source interface prunes no
columns by itself); without one it is MESSAGES. Options, none of them required but the path:

    path                 the store directory (storePathRootDir)
    commitLogPath        where storePathCommitLog points elsewhere
    fromTimestamp        store timestamps, ms since epoch, `[from, to)`
    toTimestamp
    fromOffset           commit log offsets, `[from, to)`: the log_from and log_to of a plan
    toOffset
    topic                one topic only
    includeSystemTopics  false; true shows what the broker keeps for itself too: half messages,
                         messages parked for later delivery, traces
    splitBytes           how much of the log one task reads
    checkCrc             true; checksums are computed only where the body column is asked for

A damaged range is logged and stepped over; a schema with the column `damage` gets a row for it.

Source: pyspark.sql.datasource (4.3).
"""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema

from analytics.decoding import COLUMN_TYPES, RowFilter
from analytics.errors import ReportError
from analytics.schemas import MESSAGES
from analytics.store_reader import SPLIT_BYTES_DEFAULT, Split, StoreReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

FORMAT = "commitlog"
OPTIONS = (
    "path",
    "commitLogPath",
    "fromTimestamp",
    "toTimestamp",
    "fromOffset",
    "toOffset",
    "topic",
    "includeSystemTopics",
    "splitBytes",
    "checkCrc",
)
_TRUTHS = {"true": True, "false": False}


class CommitLogDataSource(DataSource):
    """The door that Spark knocks at: checks the options, makes the reader."""

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


class SharePartition(InputPartition):
    """One task's share of the log: some splits, as plain tuples."""

    def __init__(self, share: Sequence[Split]) -> None:
        super().__init__([tuple(split) for split in share])


class CommitLogReader(DataSourceReader):
    """Plans in one process, reads in others: holds options only, no files."""

    def __init__(self, options: Mapping[str, Any], schema: StructType) -> None:
        self._options = dict(options)
        self._schema = schema
        self._arrow_schema()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take over topic equality; use bounds of store_timestamp to skip files."""
        for one in filters:
            if not self._take_over(one):
                yield one

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        plan = self._store().plan(
            from_ms=options["fromTimestamp"],
            to_ms=options["toTimestamp"],
            from_offset=options["fromOffset"],
            to_offset=options["toOffset"],
        )
        # Spark would read one partition of its own if there were none.
        return [SharePartition(share) for share in plan.shares(options["splitBytes"]) or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        rows = RowFilter(
            topic=options["topic"],
            include_system_topics=options["includeSystemTopics"],
            from_ms=options["fromTimestamp"],
            to_ms=options["toTimestamp"],
        )
        store, schema = self._store(), self._arrow_schema()
        for values in partition.value:
            yield from store.read(Split(*values), schema, rows, check_crc=options["checkCrc"])

    def _store(self) -> StoreReader:
        options = self._options
        elsewhere = options["commitLogPath"]
        return StoreReader(
            Path(options["path"]),
            commit_log_path=Path(elsewhere) if elsewhere else None,
            split_bytes=options["splitBytes"],
        )

    def _arrow_schema(self) -> pa.Schema:
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        for field in wanted:
            if field.name not in COLUMN_TYPES:
                known = ", ".join(COLUMN_TYPES)
                raise ReportError(f"commitlog has no column {field.name}; it has {known}.")
            if field.type != COLUMN_TYPES[field.name]:
                right = COLUMN_TYPES[field.name]
                raise ReportError(f"commitlog's column {field.name} is {right}, not {field.type}.")
        return wanted

    def _take_over(self, one: Filter) -> bool:
        """Use a filter; tell whether Spark need not evaluate it again."""
        options = self._options
        match one:
            case EqualTo(attribute=("topic",), value=str(topic)):
                if options["topic"] not in (None, topic):
                    return False
                options["topic"] = topic
                return True
            case (
                GreaterThanOrEqual(attribute=("store_timestamp",), value=datetime() as bound)
                | GreaterThan(attribute=("store_timestamp",), value=datetime() as bound)
            ):
                ms = _floor_ms(bound)
                options["fromTimestamp"] = max(ms, options["fromTimestamp"] or ms)
            case (
                LessThan(attribute=("store_timestamp",), value=datetime() as bound)
                | LessThanOrEqual(attribute=("store_timestamp",), value=datetime() as bound)
            ):
                ms = _floor_ms(bound) + 1
                options["toTimestamp"] = min(ms, options["toTimestamp"] or ms)
            case _:
                pass
        return False


def parse_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options with their types and defaults.

    Raises:
        ReportError: one is unknown, missing, or not what it must be.
    """
    by_lower = {name.lower(): name for name in OPTIONS}
    given: dict[str, str] = {}
    for key, value in options.items():
        if key.lower() not in by_lower:
            raise ReportError(
                f"commitlog has no option {key}; its options are {', '.join(OPTIONS)}."
            )
        given[by_lower[key.lower()]] = value
    if not given.get("path"):
        raise ReportError("commitlog needs the option path: the store directory.")
    return {
        "path": given["path"],
        "commitLogPath": given.get("commitLogPath"),
        "fromTimestamp": _number(given, "fromTimestamp", None),
        "toTimestamp": _number(given, "toTimestamp", None),
        "fromOffset": _number(given, "fromOffset", None),
        "toOffset": _number(given, "toOffset", None),
        "topic": given.get("topic"),
        "includeSystemTopics": _truth(given, "includeSystemTopics", default=False),
        "splitBytes": _number(given, "splitBytes", SPLIT_BYTES_DEFAULT),
        "checkCrc": _truth(given, "checkCrc", default=True),
    }


def _number(options: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()):
        raise ReportError(f"commitlog's option {name} is {text!r}; it must be a whole number.")
    return int(text)


def _truth(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in _TRUTHS:
        raise ReportError(f"commitlog's option {name} is {text!r}; it must be true or false.")
    return _TRUTHS[text.lower()]


def _floor_ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000 // 1)
