"""The history of this process."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from django.conf import settings

from console.history.database import Database, PostgresDatabase, SqliteDatabase
from console.history.store import HistoryStore

POSTGRES = "django.db.backends.postgresql"


@lru_cache(maxsize=1)
def history_store() -> HistoryStore:
    """Return the one store: in PostgreSQL where the console is, else in a file of its own."""
    default = settings.DATABASES["default"]
    database: Database
    if default["ENGINE"] == POSTGRES:
        database = PostgresDatabase(default)
    else:
        database = SqliteDatabase(Path(settings.TREBUCHET_HISTORY_FILE))
    return HistoryStore(database)
