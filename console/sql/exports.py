"""A result as a file: CSV for spreadsheets, JSON lines for programs, Parquet as it is."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from console.reports.results import safe_cell
from console.sql.values import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from console.sql.runs import Column, Run


def csv_lines(run: Run, columns: tuple[Column, ...]) -> Iterator[str]:
    """Yield the result as CSV, the names first; NULL is empty, no text a spreadsheet's formula."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow([safe_cell(column.name) for column in columns])
    for row in run.rows():
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
        writer.writerow([_cell(value, column) for value, column in zip(row, columns, strict=True)])
    yield buffer.getvalue()


def _cell(value: Any, column: Column) -> str:
    if value is None:
        return ""
    text = text_of(value, column.kind)
    return text if column.is_number else safe_cell(text)


def json_lines(run: Run, columns: tuple[Column, ...]) -> Iterator[str]:
    """Yield the result as a JSON object a line; whole numbers of 64 bits and more are text."""
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
