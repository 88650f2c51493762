"""The Go programs, built once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import go_client

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if go_client.missing():
        pytest.skip(f"{go_client.missing()} is missing")
    return go_client.build(tmp_path_factory.mktemp("go"))
