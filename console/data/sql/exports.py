"""A result as a file: CSV for spreadsheets, JSON lines for programs, or the original Parquet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from console.data.sql.values import text_of
from console.lib import csv_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from console.data.sql.runs import Column, Run


def csv_lines(run: Run, columns: tuple[Column, ...]) -> Iterator[str]:
    """Return the result as CSV lines with a header; NULL is an empty cell."""
    rows = (
        [
            None if value is None else text_of(value, column.kind)
            for value, column in zip(row, columns, strict=True)
        ]
        for row in run.rows()
    )
    return csv_file.csv_lines([column.name for column in columns], rows)


def json_lines(run: Run, columns: tuple[Column, ...]) -> Iterator[str]:
    """Yield the result as one JSON object per line; integers of 64 bits and more are text."""
    wide = {column.name for column in columns if _is_wide(column)}
    for row in run.rows():
        named = {column.name: value for column, value in zip(columns, row, strict=True)}
        found: dict[str, Any] = {
            name: str(value) if name in wide and value is not None else value
            for name, value in named.items()
        }
        yield json.dumps(found, ensure_ascii=False) + "\n"


def _is_wide(column: Column) -> bool:
    return column.kind == "integer" and column.type not in {
        *("int8", "int16", "int32", "uint8", "uint16", "uint32")
    }
