"""The audit as a file: one line an entry, oldest first."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from console.audit.chain import moment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.models import QuerySet

    from console.audit.models import Entry

ROWS_AT_ONCE = 1_000
COLUMNS = (
    "number",
    "at",
    "who",
    "address",
    "action",
    "subject",
    "outcome",
    "remark",
    "times",
    "before",
    "after",
    "token",
    "request_id",
)
# A spreadsheet takes what begins like this for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def values(entry: Entry) -> dict[str, Any]:
    found = (
        entry.pk,
        moment(entry.at),
        entry.actor_name,
        entry.address,
        entry.action,
        entry.subject,
        entry.outcome,
        entry.remark,
        entry.times,
        entry.before,
        entry.after,
        entry.token,
        entry.request_id,
    )
    return dict(zip(COLUMNS, found, strict=True))


def json_lines(entries: QuerySet[Entry]) -> Iterator[str]:
    for entry in entries.iterator(ROWS_AT_ONCE):
        yield json.dumps(values(entry), ensure_ascii=False) + "\n"


def csv_lines(entries: QuerySet[Entry]) -> Iterator[str]:
    """Yield lines; before and after are JSON, and what looks like a formula has a quote before."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for entry in entries.iterator(ROWS_AT_ONCE):
        writer.writerow(cell(value) for value in values(entry).values())
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def cell(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{text}" if text.startswith(FORMULA) else text
