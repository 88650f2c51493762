"""Access to this process's history."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from django.conf import settings

from console.observe.history.database import Database, PostgresDatabase, SqliteDatabase
from console.observe.history.store import HistoryStore

POSTGRES = "django.db.backends.postgresql"


@lru_cache(maxsize=1)
def history_store() -> HistoryStore:
    """Return the shared store, in the console's PostgreSQL or else in a separate file."""
    default = settings.DATABASES["default"]
    database: Database
    if default["ENGINE"] == POSTGRES:
        database = PostgresDatabase(default)
    else:
        database = SqliteDatabase(Path(settings.TREBUCHET_HISTORY_FILE))
    return HistoryStore(database)
