"""Writes results: result.parquet for programs, result.json for pages.

Both are written to a temporary directory next to their final path and renamed at the end, the JSON
last: if result.json exists, the run is complete.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

PARQUET_NAME = "result.parquet"
JSON_NAME = "result.json"
# A page shows a table; the Parquet file has all rows. A row has at most about 250 bytes, so the
# document stays below 64 MiB.
JSON_ROWS_MAX = 250_000


def publish(table: pa.Table, about: dict[str, Any], *, work: Path, out: Path) -> None:
    """Write a result into `work`, then move it to `out`, which is on the same file system.

    `about` has the fields of result.json besides the rows.
    """
    pq.write_table(table, work / PARQUET_NAME, compression="zstd")
    text = json.dumps(document(table, about), ensure_ascii=False, separators=(",", ":"))

    (work / JSON_NAME).write_text(text, encoding="utf-8")
    for name in (PARQUET_NAME, JSON_NAME):
        _sync(work / name)
    for name in (PARQUET_NAME, JSON_NAME):
        (work / name).replace(out / name)
    _sync(out)


def document(table: pa.Table, about: dict[str, Any]) -> dict[str, Any]:
    """Return the content of result.json: `about`, and the last rows up to the limit."""
    shown = table.slice(max(0, table.num_rows - JSON_ROWS_MAX))
    return {
        **about,
        "row_count": table.num_rows,
        "rows_omitted": table.num_rows - shown.num_rows,
        "rows": [
            {name: _json_value(value) for name, value in row.items()} for row in shown.to_pylist()
        ],
    }


def _json_value(value: Any) -> str | None:
    """Return a value as text: JavaScript rounds 64-bit numbers, and times need one format."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value)
    return f"{value:%Y-%m-%dT%H:%M:%SZ}"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
