"""The tables of the lake: their schemas, and how they are opened and committed to.

Invariant: columns are only ever added, at the end.
Invariant: a commit names files that are durable, and fails when somebody else committed since the
table was opened.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Schema,
    Transaction,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from analytics.errors import LakeBusyError, LakeError
from analytics.store.decode import COLUMN_TYPES, UTC_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analytics.lake.files import WrittenFile
    from analytics.lake.place import LakePlace
    from analytics.lake.rewriting import StoredFile

logger = logging.getLogger(__name__)

DAY = "day"
OFFSET = "commit_log_offset"
COMMITS_A_CHECKPOINT = 50
CONFIGURATION: dict[str, str | None] = {
    "delta.checkpointInterval": str(COMMITS_A_CHECKPOINT),
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.logRetentionDuration": "interval 7 days",
}
OF_A_MESSAGE = (
    "commit_log_offset",
    "topic",
    "queue_id",
    "queue_offset",
    "store_timestamp",
    "born_timestamp",
    "store_size",
    "body_size",
    "flag",
    "sys_flag",
    "reconsume_times",
    "prepared_transaction_offset",
    "body_crc",
    "tags",
    "keys",
    "uniq_key",
    "properties",
    "born_host",
    "store_host",
    "body",
)


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table that the lake keeps.

    Attributes:
        statistics: the columns whose least and greatest value a commit states for each file.
        sought: the columns that have a Bloom filter in each file.
        repeated: the columns with few different values, as a file names them; all when empty.
        ascending: the columns of numbers that are near the one before.
        merged: the query that makes one row of those that add up; it knows them as `given`.
    """

    name: str
    description: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()
    sought: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    ascending: tuple[str, ...] = ()
    merged: str = "SELECT * FROM given"

    @property
    def file_schema(self) -> pa.Schema:
        """The columns that are in files: a partition's are in its name."""
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])

    def _configuration(self) -> dict[str, str | None]:
        # Readers take a column without statistics for one without values, unless they are told.
        return {**CONFIGURATION, "delta.dataSkippingStatsColumns": ",".join(self.statistics)}

    def exists(self, place: LakePlace) -> bool:
        return DeltaTable.is_deltatable(place.table(self.name), place.storage_options())

    def open(self, place: LakePlace) -> DeltaTable:
        """Return the table as it is now, made when it is not there, with all our columns.

        Raises:
            LakeError: it cannot be read or made, or has a column of ours with another type.
        """
        for name in place.mend(self.name):
            logger.warning("%s: %s was half written and is taken away", self.name, name)
        try:
            try:
                found = self.existing(place)
            except TableNotFoundError:
                DeltaTable.create(
                    place.table(self.name),
                    self.schema,
                    "ignore",
                    list(self.partition_by) or None,
                    self.name,
                    self.description,
                    self._configuration(),
                    place.storage_options(),
                )
                place.sync_log(self.name)
                found = self.existing(place)
            return self._with_all_columns(place, found)
        except (DeltaError, OSError) as error:
            raise LakeError(f"The lake {place.uri} cannot be used: {_line(error)}.") from error

    def existing(self, place: LakePlace) -> DeltaTable:
        """Return the table as it is now.

        Raises:
            TableNotFoundError: there is none.
        """
        return DeltaTable(place.table(self.name), storage_options=place.storage_options())

    def _with_all_columns(self, place: LakePlace, found: DeltaTable) -> DeltaTable:
        there = {field.name: field for field in found.schema().fields}
        missing = []
        for field in Schema.from_arrow(self.schema).fields:
            if field.name not in there:
                missing.append(field)
            elif there[field.name].type != field.type:
                raise LakeError(
                    f"The table {self.name} of the lake {place.uri} has the column {field.name} "
                    f"with the type {there[field.name].type} instead of {field.type}: it was not "
                    "made by this program."
                )
        if not missing:
            return found
        found.alter.add_columns(missing)
        place.sync_log(self.name)
        return self.existing(place)

    def commit(
        self,
        place: LakePlace,
        opened: DeltaTable,
        added: Sequence[WrittenFile],
        *,
        removed: Sequence[str] = (),
        states: Mapping[str, int] | None = None,
        changes_data: bool = True,
    ) -> None:
        """Commit all of this at once to the table as it was opened; files without rows are not.

        Raises:
            LakeBusyError: somebody else has committed since then; nothing is committed.
        """
        now_ms = time.time_ns() // 1_000_000
        adds = [
            AddAction(one.path, one.size, one.partition, now_ms, changes_data, one.statistics)
            for one in added
            if one.rows
        ]
        removes = [RemoveAction(path, changes_data, now_ms) for path in removed]
        transactions = [Transaction(name, number) for name, number in (states or {}).items()]
        try:
            opened.create_write_transaction(
                [*adds, *removes],
                "append",
                opened.schema(),
                list(self.partition_by) or None,
                commit_properties=CommitProperties(
                    max_commit_retries=0, app_transactions=transactions
                ),
                # Whatever this wrote would not be durable: see checkpoint.
                post_commithook_properties=PostCommitHookProperties(
                    create_checkpoint=False, cleanup_expired_logs=False
                ),
            )
        except CommitFailedError as error:
            raise LakeBusyError(
                f"Somebody else has just written to the table {self.name} of the lake "
                f"{place.uri}: nothing was committed."
            ) from error
        place.sync_log(self.name)

    def replace(
        self,
        place: LakePlace,
        added: Sequence[WrittenFile],
        removed: Sequence[StoredFile],
        *,
        changes_data: bool = True,
    ) -> None:
        """Commit new files in the place of some to the table as it is now.

        Raises:
            LakeBusyError: somebody else has committed meanwhile; nothing is committed.
        """
        paths = [file.path for file in removed]
        self.commit(place, self.existing(place), added, removed=paths, changes_data=changes_data)

    def checkpoint(self, place: LakePlace) -> bool:
        """Write a checkpoint when enough commits follow the last; return whether that was so."""
        opened = self.existing(place)
        if not opened.version() or opened.version() % COMMITS_A_CHECKPOINT:
            return False
        opened.create_checkpoint()
        place.sync_log(self.name)
        return True


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")


MESSAGES = LakeTable(
    "bronze.messages",
    "one row for each message of each broker's log",
    pa.schema(
        [
            pa.field(DAY, pa.date32()),
            pa.field("broker", pa.string()),
            *(pa.field(name, COLUMN_TYPES[name]) for name in OF_A_MESSAGE),
        ]
    ),
    partition_by=(DAY,),
    statistics=("broker", "commit_log_offset", "topic", "store_timestamp"),
    sought=("uniq_key", "keys.list.element"),
    repeated=(
        "broker",
        "topic",
        "queue_id",
        "store_size",
        "body_size",
        "flag",
        "sys_flag",
        "reconsume_times",
        "tags",
        "properties.key_value.key",
        "born_host",
        "store_host",
    ),
    ascending=("commit_log_offset", "queue_offset", "store_timestamp", "born_timestamp"),
)
GAPS = LakeTable(
    "bronze.gaps",
    "ranges of a broker's log that the lake could not read",
    pa.schema(
        [
            pa.field("broker", pa.string()),
            pa.field("commit_log_from", pa.int64()),
            pa.field("commit_log_to", pa.int64()),
            pa.field("reason", pa.string()),
            pa.field("found_at", UTC_TIMESTAMP),
        ]
    ),
    statistics=("broker", "commit_log_from", "commit_log_to"),
)
FORGOTTEN = LakeTable(
    "bronze.forgotten",
    "messages whose content was erased on request",
    pa.schema(
        [
            pa.field("broker", pa.string()),
            pa.field("commit_log_offset", pa.int64()),
            pa.field("forgotten_at", UTC_TIMESTAMP),
        ]
    ),
    statistics=("broker", "commit_log_offset"),
)
EVENTS = LakeTable(
    "bronze.events",
    "what happened to messages: retries, dead letters, delays, transactions; one row for each",
    pa.schema(
        [
            pa.field(DAY, pa.date32()),
            pa.field("broker", pa.string()),
            pa.field("commit_log_offset", pa.int64()),
            pa.field("store_timestamp", UTC_TIMESTAMP),
            pa.field("event", pa.string()),
            pa.field("topic", pa.string()),
            pa.field("consumer_group", pa.string()),
            pa.field("producer_group", pa.string()),
            pa.field("uniq_key", pa.string()),
            pa.field("queue_id", pa.int32()),
            pa.field("queue_offset", pa.int64()),
            pa.field("reconsume_times", pa.int32()),
            pa.field("delay_level", pa.int32()),
            pa.field("half_queue_offset", pa.int64()),
        ]
    ),
    partition_by=(DAY,),
    # Never the uniq_key: the table's log would tell what was forgotten.
    statistics=("broker", "commit_log_offset", "event", "topic"),
)
SAMPLES = LakeTable(
    "bronze.samples",
    "what the console's collector sampled, by the minute: one row for each figure of each subject",
    pa.schema(
        [
            pa.field(DAY, pa.date32()),
            pa.field("minute", UTC_TIMESTAMP),
            pa.field("kind", pa.string()),
            pa.field("broker", pa.string()),
            pa.field("topic", pa.string()),
            pa.field("consumer_group", pa.string()),
            pa.field("name", pa.string()),
            pa.field("metric", pa.string()),
            pa.field("unit", pa.string()),
            pa.field("is_counter", pa.bool_()),
            pa.field("part", pa.int32()),
            pa.field("at_most_ms", pa.float64()),
            pa.field("total", pa.int64()),
            pa.field("highest", pa.int64()),
            pa.field("weight", pa.int64()),
        ]
    ),
    partition_by=(DAY,),
    statistics=("broker", "topic", "metric", "minute"),
)
TABLES = (MESSAGES, EVENTS, SAMPLES, GAPS, FORGOTTEN)
