"""Samples that an appliance's collector has written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from console.observe.history.database import SqliteDatabase
from console.observe.history.status import STATUS, Status
from console.observe.history.store import HistoryStore

if TYPE_CHECKING:
    from pathlib import Path


def sampled_at(data: Path) -> int:
    """Return the time of the collector's newest sample without a problem."""
    database = SqliteDatabase(data / "history.sqlite3")
    try:
        noted = HistoryStore(database).noted(STATUS)
    finally:
        database.close()
    status = None if noted is None else msgspec.json.decode(noted, type=Status)
    return 0 if status is None or status.problems else status.at_ms
