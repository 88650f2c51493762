"""The status of a lake: a small file that its keeper writes, and what tables and log say."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from analytics.lake.gold_tables import EVERY_TABLE
from analytics.lake.rewriting import files_of
from analytics.lake.tables import DAY, MESSAGES
from analytics.lake.watermark import Watermark

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from analytics.lake.ingest import Ingest, Look, Source
    from analytics.lake.place import LakePlace

STATUS_FILE = "status.json"
BROKER_DEFAULT = "broker-a"
NEAR_ITS_END = (
    "The lake has not read the oldest file of the log to its end, and that file is the next to "
    "expire: what is lost then becomes a gap. Is the lake's process running, and fast enough?"
)


@dataclass(slots=True)
class Status:
    """What the keeper of a lake last did; times are ms since epoch, 0 for never."""

    lake: str
    broker: str
    pid: int
    checked_ms: int = 0
    watermark: int = 0
    log_from: int = 0
    log_to: int = 0
    batch: dict[str, Any] = field(default_factory=dict)
    maintained_ms: int = 0
    error: str = ""
    error_ms: int = 0
    warning: str = ""

    def write(self, place: LakePlace) -> None:
        """Replace the file; readers see the old one or the new one.

        Raises:
            OSError: it cannot be written.
        """
        place.state.mkdir(parents=True, exist_ok=True)
        target = place.state / STATUS_FILE
        draft = target.with_suffix(".tmp")
        draft.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        draft.replace(target)


def read_status(state: Path) -> dict[str, Any] | None:
    """Return what the keeper wrote last, None when there is nothing that can be read."""
    try:
        found = json.loads((state / STATUS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def broker_of(place: LakePlace, environment: Mapping[str, str]) -> str:
    """Return whose log a lake is kept of here: as the environment, or the keeper's status says."""
    named = environment.get("TREBUCHET_LAKE_BROKER", "")
    return named or str((read_status(place.state) or {}).get("broker", BROKER_DEFAULT))


def tables_of(place: LakePlace) -> list[dict[str, Any]]:
    """Return of each table its name, version, files, rows, bytes, and its days where it has any."""
    found = []
    for table in EVERY_TABLE:
        if not table.exists(place):
            found.append({"table": table.name, "version": None, "files": 0, "rows": 0, "bytes": 0})
            continue
        opened = table.existing(place)
        actions = pa.table(opened.get_add_actions(flatten=True))
        about: dict[str, Any] = {
            "table": table.name,
            "version": opened.version(),
            "files": actions.num_rows,
            "rows": sum(actions["num_records"].to_pylist()),
            "bytes": sum(actions["size_bytes"].to_pylist()),
        }
        if table.partition_by:
            days = [each for each in actions[f"partition.{DAY}"].to_pylist() if each is not None]
            about["first_day"] = min(days).isoformat() if days else None
            about["last_day"] = max(days).isoformat() if days else None
        found.append(about)
    return found


def brokers_of(place: LakePlace, source: Source) -> list[str]:
    """Return whose messages the lake has, and the broker that was asked for."""
    found = {source.broker}
    if MESSAGES.exists(place):
        for file in files_of(MESSAGES.existing(place)):
            found |= {file.broker_from, file.broker_to}
    return sorted(found)


def status_of(place: LakePlace, source: Source, ingest: Ingest) -> dict[str, Any]:
    """Return everything as of now.

    Raises:
        LakeError: the lake or the store cannot be read.
    """
    look = ingest.look()
    watermark = None
    if MESSAGES.exists(place):
        watermark = Watermark.of(MESSAGES.existing(place), source.broker)
    return {
        "lake": place.uri,
        "broker": source.broker,
        "brokers": brokers_of(place, source),
        "tables": tables_of(place),
        "watermark": None if watermark is None else watermark.offset,
        "committed_ms": None if watermark is None else watermark.batch_ms,
        "log_from": look.log_from,
        "log_to": look.log_to,
        "pending_bytes": look.pending,
        "warning": warning_of(look, ingest),
        "keeper": read_status(place.state),
    }


def warning_of(look: Look, ingest: Ingest) -> str:
    """Return a sentence when messages may soon expire unread, nothing otherwise."""
    second = ingest.second_file_from()
    is_near = second is not None and look.pending and look.watermark < second
    return NEAR_ITS_END if is_near else ""
