from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on the import path while the test runs."""
    directory = tmp_path / "site"
    directory.mkdir()
    monkeypatch.syspath_prepend(directory)
    return directory
