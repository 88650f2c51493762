"""The tables of the lake: their schemas, and how they are opened and committed to.

Invariant: columns are only ever added, at the end.
Invariant: a commit names only durable files, and fails if another process committed after the table
was opened.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.fs
from deltalake import (
    CommitProperties,
    DeltaTable,
    Field,
    PostCommitHookProperties,
    Schema,
    Transaction,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from analytics.errors import LakeBusyError, LakeError
from analytics.lake.columns import COMMENT, comment_of
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
CONFIGURATION: dict[str, str] = {
    "delta.checkpointInterval": str(COMMITS_A_CHECKPOINT),
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.enableChangeDataFeed": "true",
    # A batch is five commits, so a week of them would be hundreds of thousands of files.
    "delta.logRetentionDuration": "interval 1 days",
}
# A field of the commit record, which `DeltaTable.history` shows.
ENGINE = "trebuchetEngine"
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
    """A table of the lake.

    Attributes:
        statistics: the columns whose least and greatest value a commit states for each file.
        bloom_columns: the columns that have a Bloom filter in each file.
        repeated: the columns with few distinct values, under their names in files; empty for all.
        ascending: integer columns whose values are close to the previous row's.
        merged: the query over `given` that combines rows that add up into one.
        properties: further properties of the table.
        of_bodies: the columns with content from bodies.
    """

    name: str
    description: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()
    bloom_columns: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    ascending: tuple[str, ...] = ()
    merged: str = "SELECT * FROM given"
    properties: tuple[tuple[str, str], ...] = ()
    of_bodies: tuple[str, ...] = ()

    @property
    def file_schema(self) -> pa.Schema:
        """The columns in files; partition columns are in the path."""
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])

    @property
    def configuration(self) -> dict[str, str]:
        """The table's properties."""
        # By default, readers treat a column without statistics as all null.
        skipping = {"delta.dataSkippingStatsColumns": ",".join(self.statistics)}
        return {**CONFIGURATION, **skipping, **dict(self.properties)}

    @property
    def _delta_schema(self) -> Schema:
        """The columns with their comments."""
        return Schema(
            [
                Field(
                    each.name, each.type, nullable=each.nullable, metadata=self._comment(each.name)
                )
                for each in Schema.from_arrow(self.schema).fields
            ]
        )

    def exists(self, place: LakePlace) -> bool:
        return DeltaTable.is_deltatable(place.table(self.name), place.storage_options())

    def open(self, place: LakePlace) -> DeltaTable:
        """Return the current table with all columns of this version, creating it if needed.

        The caller holds the lake's lock.

        Raises:
            LakeError: the table couldn't be read or created, or a column has the wrong type.
        """
        for name in place.repair_log(self.name):
            logger.warning("half-written commit removed table=%s file=%s", self.name, name)
        try:
            try:
                found = self.existing(place)
            except TableNotFoundError:
                self.create(place, "ignore")
                found = self.existing(place)
            return self._upgraded(place, found)
        except (DeltaError, OSError) as error:
            raise LakeError(
                f"The lake {place.uri} can't be opened: {_line(error)}. Check its address and this "
                "user's access to it."
            ) from error

    def create(self, place: LakePlace, mode: Literal["ignore", "overwrite"]) -> None:
        """Create the table in one commit; the mode `overwrite` removes its rows and columns."""
        DeltaTable.create(
            place.table(self.name),
            self._delta_schema,
            mode,
            list(self.partition_by) or None,
            self.name,
            self.description,
            dict(self.configuration),
            place.storage_options(),
            raise_if_key_not_exists=False,
        )
        place.sync_log(self.name)

    def existing(self, place: LakePlace) -> DeltaTable:
        """Return the current table.

        Raises:
            TableNotFoundError: the table doesn't exist.
        """
        return DeltaTable(place.table(self.name), storage_options=place.storage_options())

    def dataset(self, place: LakePlace) -> Any:
        """Return the current table as a pyarrow dataset, local or in S3.

        Raises:
            TableNotFoundError: the table doesn't exist.
        """
        root = pyarrow.fs.SubTreeFileSystem(place.path_of(self.name), place.filesystem())
        return self.existing(place).to_pyarrow_dataset(filesystem=root)

    def _upgraded(self, place: LakePlace, found: DeltaTable) -> DeltaTable:
        """Add missing columns and properties to a table from an older version."""
        there = {field.name: field for field in found.schema().fields}
        missing = []
        for field in self._delta_schema.fields:
            if field.name not in there:
                missing.append(field)
            elif there[field.name].type != field.type:
                raise LakeError(
                    f"The table {self.name} of the lake {place.uri} has the column {field.name} "
                    f"with the type {there[field.name].type} instead of {field.type}, so another "
                    "program created it. Use another directory for the lake."
                )
        silent = [
            each.name
            for each in self.schema
            if each.name in there and comment_of(each) and not there[each.name].metadata
        ]
        known = found.metadata().configuration
        properties = {
            name: value for name, value in self.configuration.items() if known.get(name) != value
        }
        if not (missing or silent or properties):
            return found
        if missing:
            found.alter.add_columns(missing)
        for name in silent:
            self.existing(place).alter.set_column_metadata(name, self._comment(name))
        if properties:
            self.existing(place).alter.set_table_properties(properties)
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
        engine: str = "",
    ) -> None:
        """Publish new files and commit all changes at once to the opened version of the table.

        Files without rows are discarded. The caller holds the lake's lock; `engine` names the
        engine that made the rows.

        Raises:
            LakeBusyError: another process has committed since; nothing is committed.
        """
        now_ms = time.time_ns() // 1_000_000
        kept = [one for one in added if one.rows]
        place.discard(self.name, [one.path for one in added if not one.rows])
        place.publish(self.name, [one.path for one in kept])
        adds = [
            AddAction(one.path, one.size, one.partition, now_ms, changes_data, one.statistics)
            for one in kept
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
                    _about(kept, removed, engine), 0, app_transactions=transactions
                ),
                # A checkpoint that the hook wrote wouldn't be durable: see checkpoint.
                post_commithook_properties=PostCommitHookProperties(
                    create_checkpoint=False, cleanup_expired_logs=False
                ),
            )
        except CommitFailedError as error:
            raise LakeBusyError(
                f"Another process has just written to the table {self.name} of the lake "
                f"{place.uri}, so nothing was committed."
            ) from error
        place.sync_log(self.name)

    def replace(
        self,
        place: LakePlace,
        added: Sequence[WrittenFile],
        removed: Sequence[StoredFile],
        *,
        changes_data: bool = True,
        engine: str = "",
    ) -> None:
        """Commit new files in place of some files of the current table.

        Raises:
            LakeBusyError: another process committed meanwhile; nothing is committed.
        """
        with place.locked():
            self.commit(
                place,
                self.existing(place),
                added,
                removed=[file.path for file in removed],
                changes_data=changes_data,
                engine=engine,
            )

    def _comment(self, name: str) -> dict[str, str]:
        said = comment_of(self.schema.field(name))
        return {COMMENT: said} if said else {}

    def checkpoint(self, place: LakePlace) -> bool:
        """Write a checkpoint if enough commits follow the last one; return whether it did."""
        opened = self.existing(place)
        if not opened.version() or opened.version() % COMMITS_A_CHECKPOINT:
            return False
        opened.create_checkpoint()
        place.sync_log(self.name)
        return True


def _about(added: Sequence[WrittenFile], removed: Sequence[str], engine: str) -> dict[str, Any]:
    """Return the description of a commit, under Delta's names if they exist."""
    metrics = {
        "numFiles": len(added),
        "numOutputRows": sum(one.rows for one in added),
        "numOutputBytes": sum(one.size for one in added),
        "numRemovedFiles": len(removed),
    }
    about: dict[str, Any] = {
        "operationMetrics": {name: str(each) for name, each in metrics.items()}
    }
    return about | ({ENGINE: engine} if engine else {})


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
    bloom_columns=("uniq_key", "keys.list.element"),
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
    "ranges of a broker's log that the lake couldn't read",
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
    # Never the uniq_key: the table's log would reveal erased values.
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
