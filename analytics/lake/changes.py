"""Changes of bronze.messages since a version, which gold and silver apply."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from analytics.lake.place import LOG
from analytics.lake.rewriting import files_of, stored_files_of
from analytics.lake.tables import MESSAGES
from analytics.lake.watermark import STATE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable

    from analytics.lake.place import LakePlace
    from analytics.lake.rewriting import LakeFile, StoredFile
    from analytics.lake.tables import LakeTable

_DAY_IN_PATH = re.compile(r"day=(\d{4}-\d{2}-\d{2})/")


@dataclass(slots=True)
class Changes:
    """Changes of bronze.messages since a version.

    Attributes:
        recounted: days to count again.
        removed_brokers: brokers whose rows a rebuild removed.
        added: new files of other days, whose rows still have to be added.
    """

    recounted: set[date] = field(default_factory=set)
    removed_brokers: set[str] = field(default_factory=set)
    added: list[LakeFile] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Difference:
    """A table and day whose sums differ from bronze."""

    table: str
    day: date
    messages_in_gold: int
    messages_in_bronze: int


def changes_since(place: LakePlace, known: int | None, bronze: DeltaTable) -> Changes:
    """Return the changes since a version, or every day if the table's log is incomplete."""
    current = {file.path: file for file in files_of(bronze)}
    every_day = Changes(recounted={file.day for file in current.values()})
    if known is None or known > bronze.version():
        return every_day
    changes = Changes()
    added: set[str] = set()
    for version in range(known + 1, bronze.version() + 1):
        actions = actions_of(place, MESSAGES, version)
        if actions is None:
            return every_day
        adds, removes = (
            {one[kind]["path"] for one in actions if kind in one and one[kind]["dataChange"]}
            for kind in ("add", "remove")
        )
        if removes:
            changes.recounted |= set(map(_day_of, adds | removes))
            changes.removed_brokers |= _rebuilt(actions)
        else:
            added |= adds
    # The file was added and rewritten before it was counted, so count its day again.
    changes.recounted |= {_day_of(path) for path in added if path not in current}
    changes.added = [
        current[path] for path in sorted(added) if _day_of(path) not in changes.recounted
    ]
    return changes


def actions_of(place: LakePlace, table: LakeTable, version: int) -> list[dict[str, Any]] | None:
    """Return the actions of one commit to a table, or None if the commit no longer exists."""
    path = place.path_of(table.name, f"{LOG}/{version:020}.json")
    try:
        with place.filesystem().open_input_stream(path) as stream:
            return [json.loads(line) for line in stream.read().splitlines()]
    except FileNotFoundError:
        return None


def _rebuilt(actions: Sequence[dict[str, Any]]) -> set[str]:
    """Return the brokers whose watermark moved in the same commit that removed rows."""
    names = [one["txn"]["appId"] for one in actions if "txn" in one]
    return {
        name.removeprefix(STATE_PREFIX)
        for name in names
        if name.startswith(STATE_PREFIX) and f"{name}-fingerprint" in names
    }


def _day_of(path: str) -> date:
    found = _DAY_IN_PATH.search(path)
    assert found, path
    return date.fromisoformat(found[1])


def days_of(bronze: DeltaTable) -> dict[date, list[LakeFile]]:
    """Return the files of bronze.messages by day."""
    found: dict[date, list[LakeFile]] = defaultdict(list)
    for file in files_of(bronze):
        found[file.day].append(file)
    return found


def files_by_day(table: DeltaTable) -> dict[date, list[StoredFile]]:
    """Return the files of a table by day."""
    found: dict[date, list[StoredFile]] = defaultdict(list)
    for file in stored_files_of(table):
        found[file.day].append(file)
    return found
