"""The audit log as a file: one line per entry, oldest first."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from console.lib import csv_file
from console.people.audit.chain import moment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.models import QuerySet

    from console.people.audit.models import Entry

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
    """Return the entries as lines of CSV; before and after are JSON."""
    rows = (map(text_of, values(entry).values()) for entry in entries.iterator(ROWS_AT_ONCE))
    return csv_file.csv_lines(COLUMNS, rows)


def text_of(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
