"""The lake's tables as one person may query them: which tables, which topics, which masks."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake.exceptions import DeltaError

from analytics.errors import LakeError
from analytics.lake.silver_tables import tables_in
from analytics.lake.tables import MESSAGES
from analytics.lake.views import lake_views

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from analytics.lake.masks import Mask
    from analytics.lake.place import LakePlace
    from analytics.lake.tables import LakeTable
    from analytics.lake.views import LakeView

logger = logging.getLogger(__name__)

UNREADABLE = "Couldn't read the lake. Run the query again; if it fails again, see the console log."


@dataclass(frozen=True, slots=True)
class View:
    """A table of the lake as one person sees it.

    Attributes:
        topics: the only topics whose rows the person sees, None for all.
        masks: the masking rules that apply to its messages.
    """

    lake_view: LakeView
    table: LakeTable
    topics: tuple[str, ...] | None
    masks: tuple[Mask, ...] = ()

    @property
    def name(self) -> str:
        return self.lake_view.name

    @property
    def maps(self) -> frozenset[str]:
        """The columns that are maps."""
        return frozenset(each.name for each in self.table.schema if pa.types.is_map(each.type))

    @property
    def streamed(self) -> pa.Schema:
        """The columns as they are streamed: a map is a list of its entries.

        DuckDB searches each map that arrives for duplicate keys, which takes longer than reading
        it. A list becomes a map again only in rows that pass the filters.
        """
        return pa.schema(
            [
                pa.field(each.name, _entries(each.type)) if each.name in self.maps else each
                for each in self.table.schema
            ]
        )


def _entries(kind: pa.MapType) -> pa.ListType:
    return pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))


def views_of(
    place: LakePlace, topics: Collection[str] | None = None, masks: Sequence[Mask] = ()
) -> list[View]:
    """Return the tables that a person may query, empty while the lake has no messages.

    Args:
        topics: the topics that the person may query, None for all. Tables without a topic column
            are left out unless the person may query all topics.
        masks: the masking rules.

    Raises:
        LakeError: the lake isn't readable.
    """
    kept = None if topics is None else tuple(sorted(topics))
    try:
        if not MESSAGES.exists(place):
            return []
        tables = tables_in(place)
    except (DeltaError, OSError) as error:
        raise unreadable(error) from error
    return [
        View(view, table, kept, tuple(masks))
        for view, table in zip(lake_views(tables), tables, strict=True)
        if kept is None or view.has_topic
    ]


def unreadable(error: Exception) -> LakeError:
    """Return the error to show for an unreadable lake; only the log has the cause.

    The cause may contain file names, which some users who run queries aren't allowed to see.
    """
    logger.error("lake unreadable error=%r", str(error).partition("\n")[0])
    return LakeError(UNREADABLE)
