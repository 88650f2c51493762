"""The status of a lake: a small file that its jobs write, and the state of tables and log.

    {"engine": "spark", "checked_ms": ..., "maintained_ms": ..., "deleted_ms": ...,
     "error": "", "error_ms": 0,
     "brokers": {"broker-a": {"watermark": ..., "log_from": ..., "log_to": ..., "warning": "",
                              "batch": {...}, "next": [[PATH, POSITION], ...]}}}

`next` lists the positions where the next record of the log may be written. A reader that can't
parse the log detects a new record when the four bytes at one of these positions are no longer zero,
or when the first of these files no longer exists.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from analytics.lake.rewriting import brokers_in
from analytics.lake.silver_tables import tables_in
from analytics.lake.tables import DAY, MESSAGES
from analytics.lake.watermark import Watermark

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from analytics.lake.ingest import Ingest, Look, Source
    from analytics.lake.place import LakePlace

STATUS_FILE = "status.json"
BROKER_DEFAULT = "broker-a"
EXPIRES_NEXT = (
    "The oldest file of the log expires next, and the lake hasn't read all of it. If it expires "
    "first, the lake has a gap. Check that the pipeline is running and keeps up with the log."
)


@dataclass(slots=True)
class Status:
    """The last results of a lake's jobs; times are ms since epoch, 0 for never.

    Attributes:
        maintained_ms: when maintenance last finished all its work.
        deleted_ms: when it last deleted unreferenced files.
    """

    lake: str
    engine: str = ""
    checked_ms: int = 0
    maintained_ms: int = 0
    deleted_ms: int = 0
    error: str = ""
    error_ms: int = 0
    brokers: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, place: LakePlace) -> Status:
        """Return the last written status, with defaults for missing fields."""
        known = read_status(place.state) or {}
        status = cls(place.uri)
        for name in ("engine", "checked_ms", "maintained_ms", "deleted_ms", "error", "error_ms"):
            if isinstance(known.get(name), type(getattr(status, name))):
                setattr(status, name, known[name])
        if isinstance(known.get("brokers"), dict):
            status.brokers = known["brokers"]
        return status

    def update_positions(self, ingest: Ingest, broker: str, look: Look) -> None:
        """Update the positions of a broker's lake and log."""
        about = self.brokers.setdefault(broker, {})
        about |= asdict(look) | {"warning": warning_of(look, ingest)}
        about["next"] = ingest.next_records(max(look.watermark, look.log_from))

    def write(self, place: LakePlace) -> None:
        """Replace the file atomically.

        Raises:
            OSError: the file couldn't be written.
        """
        place.state.mkdir(parents=True, exist_ok=True)
        target = place.state / STATUS_FILE
        draft = target.with_suffix(".tmp")
        draft.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        draft.replace(target)


def read_status(state: Path) -> dict[str, Any] | None:
    """Return the last written status, or None if it isn't readable."""
    try:
        found = json.loads((state / STATUS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def broker_of(place: LakePlace, environment: Mapping[str, str]) -> str:
    """Return the broker whose log this lake ingests, from the environment or the status."""
    named = environment.get("TREBUCHET_LAKE_BROKER", "")
    return named or next(iter(Status.of(place).brokers), BROKER_DEFAULT)


def tables_of(place: LakePlace) -> list[dict[str, Any]]:
    """Return name, version, files, rows, bytes and, if any, days of each table."""
    found = []
    for table in tables_in(place):
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
    """Return the brokers whose messages the lake has, and the requested broker."""
    found = {source.broker}
    if MESSAGES.exists(place):
        found |= brokers_in(MESSAGES.existing(place))
    return sorted(found)


def status_of(place: LakePlace, source: Source, ingest: Ingest) -> dict[str, Any]:
    """Return the current status of the lake.

    Raises:
        LakeError: the lake or the store isn't readable.
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
        "pending_since_ms": ingest.pending_since_ms(look),
        "warning": warning_of(look, ingest),
        "jobs": read_status(place.state),
    }


def warning_of(look: Look, ingest: Ingest) -> str:
    """Return a warning sentence if messages may soon expire unread, else ""."""
    second = ingest.second_file_from()
    is_near = second is not None and look.pending and look.watermark < second
    return EXPIRES_NEXT if is_near else ""
