"""The database of the history: SQLite, and PostgreSQL if installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from console.observe.history.database import PostgresDatabase, SqliteDatabase
from tests.support.postgres import postgres, programs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from console.observe.history.database import Database


@pytest.fixture(scope="session")
def postgres_settings() -> Iterator[dict[str, Any]]:
    binaries = programs()
    if binaries is None:
        pytest.skip("PostgreSQL is missing (apt-get install postgresql)")
    with postgres(binaries) as settings:
        yield settings


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database."""
    made: Database
    if request.param == "sqlite":
        made = SqliteDatabase(tmp_path / "history.sqlite3")
    else:
        made = PostgresDatabase(request.getfixturevalue("postgres_settings"))
        with made.transaction(writes=True):
            for name in ("subjects", "layouts", "samples", "readings", "blocks", "events", "notes"):
                made.run(f"DELETE FROM history_{name}")
    yield made
    made.close()
