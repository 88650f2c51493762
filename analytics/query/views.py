"""What a query may read: a view for each table of the lake that there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from analytics.errors import LakeError
from analytics.lake.tables import MESSAGES, TABLES

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from analytics.lake.place import LakePlace
    from analytics.lake.tables import LakeTable


@dataclass(frozen=True, slots=True)
class View:
    """A table of the lake at one version of it.

    Attributes:
        columns: those of our schema that the table has by now; new ones come with the next batch.
        files: paths, or addresses in S3.
        opened: None while nothing has been written to it.
    """

    name: str
    description: str
    schema: pa.Schema
    columns: tuple[str, ...]
    files: tuple[str, ...]
    opened: DeltaTable | None


def views_of(place: LakePlace) -> list[View]:
    """Return the tables as they are now, none while the lake has no message.

    Raises:
        LakeError: the lake cannot be read.
    """
    try:
        if not MESSAGES.exists(place):
            return []
        return [_view(place, table) for table in TABLES]
    except (DeltaError, OSError) as error:
        what = str(error).partition("\n")[0].rstrip(".")
        raise LakeError(f"The lake {place.uri} cannot be read: {what}.") from error


def _view(place: LakePlace, table: LakeTable) -> View:
    names = tuple(table.schema.names)
    if not table.exists(place):
        return View(table.name, table.description, table.schema, names, (), None)
    opened = table.existing(place)
    there = {field.name for field in opened.schema().fields}
    return View(
        table.name,
        table.description,
        table.schema,
        tuple(name for name in names if name in there),
        tuple(sorted(opened.file_uris())),
        opened,
    )
