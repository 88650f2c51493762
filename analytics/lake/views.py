"""Views: the lake as SQL sees it, one view for each table, by DuckDB.

Pure: the reader that opens DuckDB, and limits it, is the caller's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from analytics.lake.gold_tables import EVERY_TABLE
from analytics.lake.masks import MASKED, masked_columns, quoted
from analytics.lake.tables import DAY

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from analytics.lake.masks import Mask
    from analytics.lake.tables import LakeTable

TOPIC = "topic"
ANY = "*"
WILDCARD = re.compile(r"([*?\[])")
_TYPES = {
    pa.date32(): "DATE",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.timestamp("us", tz="UTC"): "TIMESTAMPTZ",
}
_DESCRIPTIONS = {
    DAY: "the day of storing, in UTC",
    "broker": "brokerName",
    "commit_log_offset": "where the record begins in the broker's log; unique for each broker",
    "topic": "the topic it was stored in",
    "queue_id": "its queue",
    "queue_offset": "its place in the queue",
    "store_timestamp": "when the broker stored it",
    "born_timestamp": "when the producer made it, by the producer's clock",
    "store_size": "bytes of the whole record",
    "body_size": "bytes of the body, as stored",
    "flag": "the producer's own number",
    "sys_flag": "RocketMQ's bits: compressed, transaction state, IPv6 hosts",
    "reconsume_times": "how often consumers had given it back",
    "prepared_transaction_offset": "of a committed message: where its half message is",
    "body_crc": "CRC32 of the body",
    "tags": "TAGS",
    "keys": "KEYS, one by one",
    "uniq_key": "UNIQ_KEY, the message id that the client gave",
    "properties": "all properties",
    "born_host": "the producer's address",
    "store_host": "the broker's address",
    "body": "the body, where a rule keeps it",
    "event": "retry, dead_letter, delay; half, check, commit, ended, given_up of a transaction",
    "consumer_group": "who is to try it again, or has given it up",
    "producer_group": "who began the transaction",
    "delay_level": "of a delay: how long, by the broker's messageDelayLevel",
    "half_queue_offset": "the place of the half message among them; of ended, which one ended",
    "commit_log_from": "where the range of the log begins",
    "commit_log_to": "where it ends",
    "reason": "why",
    "found_at": "when the lake found it",
    "forgotten_at": "when the content was erased",
    "minute": "when the minute begins",
    "messages": "how many messages",
    "bytes": "bytes of their records",
    "body_bytes": "bytes of their bodies, as stored",
    "at_most_ms": "the upper bound of the bucket in ms; in gold -1 for messages from the future",
    "sum_ms": "milliseconds of all of them together",
    "max_ms": "the longest",
    "key": "one of KEYS; null for all the others together",
    "key_count": "how many keys the row is of",
    "kind": "whose figure it is: topic, group, progress of a group in a topic, broker, process; "
    "consumers and producers are clients of a group that are alike",
    "name": "of a broker its id, of a process what it is, of consumers their language and version, "
    "of producers the same behind their group and an @",
    "metric": "the figure: put, got, lag, ...",
    "unit": "msg, B, ms, calls; of bare numbers none",
    "is_counter": "whether it counts what was added; otherwise it is a reading",
    "part": "the queue, or the bucket of a histogram; null for all of it",
    "total": "what was added in the minute; of readings their sum",
    "highest": "the highest reading; of a counter what ten seconds had at most",
    "weight": "ms that a counter's total covers, or how many readings there are",
}


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column; the type is DuckDB's."""

    name: str
    type: str
    description: str


@dataclass(frozen=True, slots=True)
class LakeView:
    """A view that bears its table's name, `bronze.messages` being `messages` of schema `bronze`."""

    name: str
    description: str
    columns: tuple[ViewColumn, ...]
    merged: str

    @property
    def has_topic(self) -> bool:
        """Whether its rows are of topics, so that a right to topics can narrow them."""
        return any(column.name == TOPIC for column in self.columns)

    def query(
        self,
        files: Sequence[str],
        topics: Collection[str] | None = None,
        masks: Sequence[Mask] = (),
    ) -> str:
        """Return the query of its rows in these files of its table; without files it has none.

        Args:
            topics, masks: as for `query_over`.
        """
        if not files:
            return self.query_over("", topics, masks)
        days = "hive_partitioning=false"
        if any(column.name == DAY for column in self.columns):
            days = f"hive_partitioning=true, hive_types={{'{DAY}': DATE}}"
        return self.query_over(
            f"read_parquet({file_list(files)}, union_by_name=true, {days})", topics, masks
        )

    def query_over(
        self, source: str, topics: Collection[str] | None = None, masks: Sequence[Mask] = ()
    ) -> str:
        """Return the query of its rows over those of its table, which `source` has.

        A column that the source lacks is null. No query that somebody else wrote may be joined to
        this one: DuckDB tries filters in any order, and the error of one tells what was in a row.

        Args:
            topics: where given, the query returns no rows of other topics; `*` in a name stands for
                any characters. A view without a topic column is not narrowed: whether such a reader
                may have it is the caller's to decide.
            masks: what is hidden in messages.
        """
        every = ", ".join(f"NULL::{column.type} AS {column.name}" for column in self.columns)
        rows = f"SELECT {every} WHERE false"
        if source:
            rows += f" UNION ALL BY NAME SELECT * FROM {source}"
        names = [column.name for column in self.columns]
        masked = masked_columns(masks) if set(names) >= MASKED else {}
        selected = ", ".join(f"{masked.get(name, f'found.{name}')} AS {name}" for name in names)
        where = "" if topics is None or not self.has_topic else f" WHERE {_allowed(topics)}"
        return (
            f"WITH given AS NOT MATERIALIZED (SELECT {selected} FROM ({rows}) AS found{where}) "
            f"{self.merged}"
        )


def file_list(files: Sequence[str]) -> str:
    """Return files as a list for read_parquet, which takes names with * ? [ for patterns."""
    names = ", ".join(quoted(WILDCARD.sub(r"[\1]", file)) for file in files)
    return f"[{names}]"


def _allowed(topics: Collection[str]) -> str:
    """Return the condition that a row is of these topics."""
    names = [each for each in topics if ANY not in each]
    # An empty list would be no SQL.
    allowed = [f"found.{TOPIC} IN ({', '.join(map(quoted, names)) or 'NULL'})"]
    for pattern in topics:
        if ANY in pattern:
            literal = pattern.replace("[", "[[]").replace("?", "[?]")
            allowed.append(f"found.{TOPIC} GLOB {quoted(literal)}")
    return f"({' OR '.join(allowed)})"


def lake_views() -> tuple[LakeView, ...]:
    """Return every view that a reader may be given."""
    return tuple(_view_of(table) for table in EVERY_TABLE)


def _view_of(table: LakeTable) -> LakeView:
    return LakeView(
        table.name,
        table.description,
        tuple(
            ViewColumn(field.name, _type_of(field.type), _DESCRIPTIONS[field.name])
            for field in table.schema
        ),
        table.merged,
    )


def _type_of(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"{_type_of(kind.value_type)}[]"
    if pa.types.is_map(kind):
        return f"MAP({_type_of(kind.key_type)}, {_type_of(kind.item_type)})"
    return _TYPES[kind]
