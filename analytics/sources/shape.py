"""The columns that are requested from a source, as Arrow types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema

from analytics.errors import ReportError
from analytics.store.decode import COLUMN_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType


def arrow_schema_of(
    source: str, schema: StructType, types: Mapping[str, pa.DataType] | None = None
) -> pa.Schema:
    """Return the Arrow schema of a Spark schema; `types` are the known columns, by default a
    message's.

    Raises:
        ReportError: the source lacks a column, or it has another type.
    """
    types = types or COLUMN_TYPES
    wanted = to_arrow_schema(schema, timezone="UTC")
    for field in wanted:
        if field.name not in types:
            raise ReportError(f"{source} has no column {field.name}; it has {', '.join(types)}.")
        if field.type != types[field.name]:
            right = types[field.name]
            raise ReportError(f"{source}'s column {field.name} is {right}, not {field.type}.")
    return wanted
