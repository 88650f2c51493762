"""Where results go: result.parquet for programs, result.json for pages.

Both are written whole into a temporary directory beside their place and renamed at the end, the
JSON last: whoever sees result.json sees a finished run.
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
# A page shows a table, not an archive: the Parquet file has all rows. A row has at most some 250
# bytes, so that the document stays below 64 MiB.
JSON_ROWS_MAX = 250_000


def publish(table: pa.Table, about: dict[str, Any], *, work: Path, out: Path) -> None:
    """Write a result into `work`, then move it to `out`, which is on the same file system.

    `about` is what result.json says beside the rows.
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
    """Return what result.json holds: `about`, and as many of the last rows as it takes."""
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
    """Return text: 64-bit numbers do not survive JavaScript, and times have one form only."""
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
