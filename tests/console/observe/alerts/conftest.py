"""A history for the test, rules over it, and rounds that the test advances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from console.observe.history.database import SqliteDatabase
from console.observe.history.store import HistoryStore
from tests.console.observe.alerts.support import Rounds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def rounds(db, tmp_path: Path) -> Iterator[Rounds]:
    store = HistoryStore(SqliteDatabase(tmp_path / "rounds.sqlite3"))
    yield Rounds(store)
    store.database.close()
