"""Result cells as lossless JSON: integers of any length, timestamps in UTC."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as kinds

from analytics.query.validation import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TIME_OUT_OF_RANGE = (
    "The result has a list or map with a time that's too far away to be shown. Cast it to VARCHAR."
)


def kind_of(kind: pa.DataType) -> str:
    """Return how a page shows a column: integer, decimal, float, boolean, moment, text, ..."""
    for name, fits in (
        ("integer", kinds.is_integer),
        ("decimal", kinds.is_decimal),
        ("float", kinds.is_floating),
        ("boolean", kinds.is_boolean),
        ("bytes", lambda one: kinds.is_binary(one) or kinds.is_large_binary(one)),
        ("nested", kinds.is_nested),
        ("date", kinds.is_date),
        ("null", kinds.is_null),
    ):
        if fits(kind):
            # A sum of integers is a decimal with scale 0.
            whole = name == "decimal" and kind.scale == 0
            return "integer" if whole else name
    if kinds.is_timestamp(kind):
        return "time" if kind.tz is None else "moment"
    return "text"


def lines_of(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield each row as a line of JSON: an array of its cells."""
    columns = [_cells(column) for column in batch.columns]
    for row in zip(*columns, strict=True):
        yield json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _cells(column: pa.Array) -> list[Any]:
    kind = column.type
    if kinds.is_timestamp(kind):
        # Convert via integers: a time zone isn't needed, and the year may be out of range.
        numbers = column.cast(pa.int64()).cast(pa.timestamp(kind.unit))
        end = "" if kind.tz is None else "Z"
        texts = numbers.cast(pa.string()).to_pylist()
        return [None if text is None else text.replace(" ", "T") + end for text in texts]
    if kinds.is_date(kind) or kinds.is_time(kind):
        found: list[Any] = column.cast(pa.string()).to_pylist()
        return found
    convert = _CONVERSIONS.get(kind_of(kind), plain)
    try:
        values = column.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError) as error:
        raise QueryError(TIME_OUT_OF_RANGE) from error
    return [None if value is None else convert(value) for value in values]


def plain(value: Any) -> Any:
    """Convert any value to plain JSON types."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [plain(each) for each in value]
    return str(value)


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {"integer": int, "decimal": str, "bytes": bytes.hex}
