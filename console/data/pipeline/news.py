"""Whether the pipeline has work; beat checks this before it sends a job.

The lake's status file records the position of the next record in each log. Once the four bytes at
that position aren't zero, there is new data. An idle system therefore never wakes the worker.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings

from console.lib.queues import INGEST, MAINTAIN

if TYPE_CHECKING:
    from collections.abc import Callable

RECORD_SIZE_BYTES = 4
# How long to wait before retrying a lake that failed.
ERROR_PAUSE_MS = 300_000
SAMPLES = "*.jsonl.gz"


def is_wanted(task: str, arguments: dict[str, Any], now_ms: int) -> bool:
    """Return whether a pipeline task would find work; other tasks always run."""
    check: Callable[[dict[str, Any], dict[str, Any], int], bool] | None = {
        INGEST: _has_news,
        MAINTAIN: _needs_maintenance,
    }.get(task)
    if check is None:
        return True
    if not settings.TREBUCHET_LAKE:
        return False
    status = read_status()
    return status is None or check(status, arguments, now_ms)


def read_status() -> dict[str, Any] | None:
    """Return the last status of the lake's jobs, or None if it can't be read."""
    lake = settings.TREBUCHET_LAKE
    state = Path(settings.TREBUCHET_DATA) / "lake" if "://" in lake else Path(lake)
    try:
        found = json.loads((state / "status.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _has_news(status: dict[str, Any], arguments: dict[str, Any], now_ms: int) -> bool:
    if status.get("error") and now_ms - int(status.get("checked_ms", 0)) < ERROR_PAUSE_MS:
        return False
    broker = status.get("brokers", {}).get(arguments.get("broker"))
    if broker is None:
        return True
    places = broker.get("next") or []
    if not places or not Path(places[0][0]).parent.exists():
        return True
    return any(_is_written(Path(path), int(at)) for path, at in places) or _has_samples(status)


def _is_written(path: Path, position: int) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(position)
            return any(file.read(RECORD_SIZE_BYTES))
    except OSError:
        return False


def _has_samples(status: dict[str, Any]) -> bool:
    """Return whether the collector has finished an hour since the last job."""
    since = int(status.get("checked_ms", 0)) / 1000
    folder = Path(settings.TREBUCHET_DATA) / "samples"
    return any(path.stat().st_mtime > since for path in folder.glob(SAMPLES))


def _needs_maintenance(status: dict[str, Any], _: dict[str, Any], now_ms: int) -> bool:
    """Return whether batches were added, or a day ended, since the last maintenance."""
    done = int(status.get("maintained_ms", 0))
    batches = [
        int((about.get("batch") or {}).get("at_ms", 0))
        for about in status.get("brokers", {}).values()
    ]
    return max(batches, default=0) > done or (any(batches) and _day(done) != _day(now_ms))


def _day(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).date().isoformat()
