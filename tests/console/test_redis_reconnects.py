"""A long Redis outage: worker and beat reconnect at short intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kombu.exceptions import OperationalError
from kombu.utils import functional

from console.celery import REDIS_TRIED_EVERY_S, app

if TYPE_CHECKING:
    from pathlib import Path

TRIES = 50


@pytest.mark.parametrize("kind", ["connection_for_read", "connection_for_write"])
def test_redis_is_retried_as_often_after_minutes_as_at_first(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functional, "sleep", lambda seconds: None)
    waits: list[float] = []
    connection = getattr(app, kind)(url=f"redis+socket://{tmp_path / 'nobody'}")

    with pytest.raises(OperationalError):
        connection.ensure_connection(lambda error, wait: waits.append(wait), TRIES)

    assert waits == [REDIS_TRIED_EVERY_S] * TRIES
