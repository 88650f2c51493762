"""The tables of silver: a topic's JSON bodies as columns, and the messages that don't fit.

`silver.orders` stores its declared columns in its own properties, so any reader of the lake can use
the tables without the rules that declared them.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs
from deltalake.exceptions import TableNotFoundError

from analytics.lake.bodies import REJECTED_SUFFIX
from analytics.lake.body_columns import BodyColumns
from analytics.lake.columns import COMMENT
from analytics.lake.gold_tables import EVERY_TABLE
from analytics.lake.tables import DAY, LakeTable
from analytics.store.decode import UTC_TIMESTAMP

if TYPE_CHECKING:
    from analytics.lake.place import LakePlace

SILVER = "silver"
COLUMNS_PROPERTY = "trebuchet.columns"
ABOUT_MESSAGE = (
    pa.field(DAY, pa.date32()),
    pa.field("broker", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("origin_topic", pa.string()),
    pa.field("commit_log_offset", pa.int64()),
    pa.field("queue_id", pa.int32()),
    pa.field("queue_offset", pa.int64()),
    pa.field("store_timestamp", UTC_TIMESTAMP),
    pa.field("uniq_key", pa.string()),
)
_OWN_NAMES = frozenset(field.name for field in ABOUT_MESSAGE)


@dataclass(frozen=True, slots=True)
class SilverTopic:
    """A topic whose bodies are columns."""

    topic: str
    columns: BodyColumns

    @property
    def accepted(self) -> LakeTable:
        """The table of the messages whose bodies fit."""
        fields = [
            pa.field(name, column.kind.type, metadata={COMMENT: column.description})
            for name, column in zip(self.names, self.columns.columns, strict=True)
        ]
        return self._table(
            f"{SILVER}.{self.topic}",
            f"messages of {self.topic} whose JSON bodies fit, a column for each declared field",
            fields,
            ((COLUMNS_PROPERTY, self.columns.text),),
            tuple(self.names),
        )

    @property
    def rejected(self) -> LakeTable:
        """The table of the other messages, each with the reason."""
        about = "why the body doesn't fit; the body is in bronze.messages"
        return self._table(
            f"{SILVER}.{self.topic}{REJECTED_SUFFIX}",
            f"messages of {self.topic} whose bodies don't fit, and why",
            [pa.field("reason", pa.string(), metadata={COMMENT: about})],
        )

    @property
    def tables(self) -> tuple[LakeTable, LakeTable]:
        return self.accepted, self.rejected

    @property
    def names(self) -> list[str]:
        """The column names in the table; the message's own columns have precedence."""
        return [
            f"body_{each.name}" if each.name.lower() in _OWN_NAMES else each.name
            for each in self.columns.columns
        ]

    @property
    def state(self) -> str:
        """The name of the number in the tables' logs that records the version read of bronze."""
        return f"silver-{zlib.crc32(self.columns.text.encode()):08x}"

    @staticmethod
    def _table(
        name: str,
        description: str,
        fields: list[pa.Field],
        properties: tuple[tuple[str, str], ...] = (),
        of_bodies: tuple[str, ...] = (),
    ) -> LakeTable:
        return LakeTable(
            name,
            description,
            pa.schema([*ABOUT_MESSAGE, *fields]),
            partition_by=(DAY,),
            # Never values of a body or a key: the table's log would reveal erased content.
            statistics=("broker", "commit_log_offset", "store_timestamp"),
            bloom_columns=("uniq_key",),
            properties=properties,
            of_bodies=of_bodies,
        )


def silver_in(place: LakePlace) -> list[SilverTopic]:
    """Return the topics that have silver tables in the lake, by name.

    Raises:
        DeltaError, OSError: the lake isn't readable.
    """
    chosen = pyarrow.fs.FileSelector(place.path_of(SILVER), allow_not_found=True)
    found = []
    for info in place.filesystem().get_file_info(chosen):
        if info.type == pyarrow.fs.FileType.Directory:
            stored = stored_columns(place, info.base_name)
            if stored is not None:
                found.append(SilverTopic(info.base_name, stored))
    return sorted(found, key=lambda each: each.topic)


def stored_columns(place: LakePlace, topic: str) -> BodyColumns | None:
    """Return the columns of a topic's table, or None if there is no table."""
    try:
        opened = SilverTopic(topic, BodyColumns(())).accepted.existing(place)
    except TableNotFoundError:
        return None
    text = opened.metadata().configuration.get(COLUMNS_PROPERTY)
    return None if text is None else BodyColumns.of_text(text)


def tables_in(place: LakePlace) -> tuple[LakeTable, ...]:
    """Return every table that a lake has or may have."""
    return (*EVERY_TABLE, *(table for topic in silver_in(place) for table in topic.tables))
