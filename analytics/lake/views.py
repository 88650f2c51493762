"""Views: the lake's tables in SQL, one DuckDB view for each table.

Pure: the caller opens DuckDB and sets its limits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from analytics.lake.columns import DESCRIPTIONS, comment_of
from analytics.lake.gold_tables import EVERY_TABLE
from analytics.lake.masks import MASKED, hidden_columns, masked_columns, quoted
from analytics.lake.tables import DAY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from analytics.lake.masks import Mask
    from analytics.lake.tables import LakeTable

TOPIC = "topic"
ANY = "*"
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column; the type is DuckDB's."""

    name: str
    type: str
    description: str


@dataclass(frozen=True, slots=True)
class LakeView:
    """A view with its table's name: `bronze.messages` is `messages` in schema `bronze`.

    Attributes:
        of_bodies: the columns with content from bodies.
    """

    name: str
    description: str
    columns: tuple[ViewColumn, ...]
    merged: str
    of_bodies: frozenset[str] = frozenset()

    @property
    def sql_name(self) -> str:
        """The name in a query."""
        schema, _, table = self.name.partition(".")
        return f"{schema}.{identifier(table)}"

    @property
    def has_topic(self) -> bool:
        """Whether rows have a topic, so that topic permissions can filter them."""
        return any(column.name == TOPIC for column in self.columns)

    def query(
        self,
        files: Sequence[str],
        topics: Collection[str] | None = None,
        masks: Sequence[Mask] = (),
    ) -> str:
        """Return the query for its rows in some files of its table; without files, it returns no
        rows.

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
        """Return the query for its rows over the table's rows in `source`.

        A column that the source lacks is null. Never join this query with one from a user: DuckDB
        evaluates filters in any order, and an error in the user's filter would reveal a row.

        Args:
            topics: if given, rows of other topics are left out; `*` in a name matches any
                characters. A view without a topic column isn't filtered: the caller decides whether
                the reader may use it.
            masks: the masking rules for messages.
        """
        every = ", ".join(
            f"NULL::{column.type} AS {identifier(column.name)}" for column in self.columns
        )
        rows = f"SELECT {every} WHERE false"
        if source:
            rows += f" UNION ALL BY NAME SELECT * FROM {source}"
        names = [column.name for column in self.columns]
        masked = masked_columns(masks) if set(names) >= MASKED else {}
        masked |= hidden_columns(masks, map(identifier, self.of_bodies))
        selected = ", ".join(
            f"{masked.get(name, f'found.{name}')} AS {name}" for name in map(identifier, names)
        )
        where = "" if topics is None or not self.has_topic else f" WHERE {_allowed(topics)}"
        return (
            f"WITH given AS NOT MATERIALIZED (SELECT {selected} FROM ({rows}) AS found{where}) "
            f"{self.merged}"
        )


def file_list(files: Sequence[str]) -> str:
    """Return files as a list for read_parquet, which treats * ? [ in names as patterns."""
    names = ", ".join(quoted(WILDCARD.sub(r"[\1]", file)) for file in files)
    return f"[{names}]"


def _allowed(topics: Collection[str]) -> str:
    """Return the condition that a row has one of these topics."""
    names = [each for each in topics if ANY not in each]
    # An empty list isn't valid SQL.
    allowed = [f"found.{TOPIC} IN ({', '.join(map(quoted, names)) or 'NULL'})"]
    for pattern in topics:
        if ANY in pattern:
            literal = pattern.replace("[", "[[]").replace("?", "[?]")
            allowed.append(f"found.{TOPIC} GLOB {quoted(literal)}")
    return f"({' OR '.join(allowed)})"


def identifier(name: str) -> str:
    """Return a name as an SQL identifier; field names of bodies may be SQL keywords."""
    if name in DESCRIPTIONS or (PLAIN_NAME.fullmatch(name) and name.lower() not in _words()):
        return name
    return '"' + name.replace('"', '""') + '"'


@cache
def _words() -> frozenset[str]:
    """Return the SQL keywords that can't be identifiers."""
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        found = connection.execute("SELECT keyword_name, keyword_category FROM duckdb_keywords()")
        return frozenset(name for name, kind in found.fetchall() if kind != "unreserved")


def lake_views(tables: Iterable[LakeTable] = EVERY_TABLE) -> tuple[LakeView, ...]:
    """Return the view of each table that readers may query."""
    return tuple(_view_of(table) for table in tables)


def _view_of(table: LakeTable) -> LakeView:
    return LakeView(
        table.name,
        table.description,
        tuple(
            ViewColumn(field.name, _type_of(field.type), comment_of(field))
            for field in table.schema
        ),
        table.merged,
        frozenset(table.of_bodies),
    )


def _type_of(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"{_type_of(kind.value_type)}[]"
    if pa.types.is_map(kind):
        return f"MAP({_type_of(kind.key_type)}, {_type_of(kind.item_type)})"
    if pa.types.is_struct(kind):
        fields = (f"{identifier(each.name)} {_type_of(each.type)}" for each in kind)
        return f"STRUCT({', '.join(fields)})"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return _TYPES[kind]
