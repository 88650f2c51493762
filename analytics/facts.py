"""Facts from a store's configuration files: topics, and the offsets of groups.

The broker writes these files every few seconds, so they can lag behind the log by that much.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from analytics.errors import ReportError
from broker_core.protocol import java_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TOPIC_GROUP_SEPARATOR = "@"
DIRECTORY = "config"
OFFSETS_FILE = "consumerOffset.json"
TOPICS_FILE = "topics.json"
SAVED_SUFFIX = ".bak"


@dataclass(frozen=True, slots=True)
class ConsumerOffset:
    """The next queue_offset that a group reads from a queue."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """`topics` maps a topic to its queues; a missing file has no entries."""

    offsets: tuple[ConsumerOffset, ...] = ()
    topics: Mapping[str, int] = field(default_factory=dict)


def facts_of(store: Path) -> StoreFacts:
    """Read the configuration files of a store directory.

    Raises:
        ReportError: a file exists, but neither the file nor its backup is valid.
    """
    offsets = _table(store / DIRECTORY / OFFSETS_FILE, "offsetTable")
    topics = _table(store / DIRECTORY / TOPICS_FILE, "topicConfigTable")
    return StoreFacts(tuple(_offsets(offsets)), {name: _queues(of) for name, of in topics.items()})


def _table(path: Path, name: str) -> dict[str, Any]:
    reason = ""
    for candidate in (path, path.with_name(path.name + SAVED_SUFFIX)):
        try:
            document = java_json.decode(candidate.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            reason = reason or str(error)
            continue
        table = document.get(name) if isinstance(document, dict) else None
        if table is None or isinstance(table, dict):
            return table or {}
        reason = reason or f"{name} isn't an object"
    if reason:
        raise ReportError(f"{path} can't be read: {reason.splitlines()[0]}.")
    return {}


def _offsets(table: Mapping[str, Any]) -> list[ConsumerOffset]:
    found = []
    for key, queues in table.items():
        topic, separator, group = key.partition(TOPIC_GROUP_SEPARATOR)
        if not separator or not isinstance(queues, dict):
            continue
        found += [
            ConsumerOffset(group, topic, int(queue_id), offset)
            for queue_id, offset in queues.items()
            if str(queue_id).isdecimal() and isinstance(offset, int) and offset >= 0
        ]
    return found


def _queues(topic: Any) -> int:
    number = topic.get("writeQueueNums") if isinstance(topic, dict) else None
    return number if isinstance(number, int) else 0
