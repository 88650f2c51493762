"""Rebuilds a lost topics.json from the queues in the store of a stopped broker."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from broker_core.composition.foundation import CONFIG_DIRECTORY
from broker_core.formats.paths import StorePaths, may_be_offset_file
from broker_core.message.data_version import DataVersion
from broker_core.message.names import is_legal_name, is_system_topic
from broker_core.message.topic_config import QUEUE_NUMS_MAX, TopicConfig
from broker_core.metadata.document import Document
from broker_core.protocol import java_json
from broker_core.store.lock_file import acquire_lock

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.storage import Storage

Table = dict[str, TopicConfig]


class _KnownTopics(NamedTuple):
    """The topics in topics.json or, if the broker can't read that file, in its `.bak`."""

    table: Table
    version: DataVersion
    damage: str
    """Why topics.json can't be read; empty if it can, or if it is missing."""


def rebuild_topics(
    root: Path, files: Storage, now_ms: int, *, is_preview: bool = False
) -> list[str]:
    """Add topics that have queues in the store at `root` to topics.json; return the changes.

    Topics in the file keep their settings, except for a readQueueNums that is lower than the number
    of their queues. A new topic gets as many queues as the store or the consumer offsets have, and
    read and write permission. A preview changes nothing.

    Raises:
        StoreError: another process uses the store.
    """
    paths = StorePaths.of(str(root), "")
    if is_preview:
        return _rebuild(paths, files, now_ms, is_preview=True)
    lock = acquire_lock(paths.lock, files)
    try:
        return _rebuild(paths, files, now_ms, is_preview=False)
    finally:
        lock.close()


def _rebuild(paths: StorePaths, files: Storage, now_ms: int, *, is_preview: bool) -> list[str]:
    path = paths.root / CONFIG_DIRECTORY / "topics.json"
    known = _known(path, files)
    table = dict(known.table)
    changes: list[str] = []
    aside = path.with_name(f"{path.name}.damaged")
    if known.damage:
        changes.append(f"rename {path} to {aside.name}: {known.damage}")
    changes += _add(table, _queue_nums(paths.consume_queue, files), _named_queue_nums(path, files))
    if not changes:
        return [f"{path} has every topic and queue of the store; nothing to do"]
    changes.append(f"write {path} with {len(table)} topics")
    if is_preview:
        return changes
    files.make_directory(path.parent)
    if known.damage:
        files.rename(path, aside)
    version = known.version.next(now_ms)
    Document(files, path).save({"dataVersion": version, "topicConfigTable": table})
    return changes


def _add(table: Table, queue_nums: dict[str, int], named: dict[str, int]) -> list[str]:
    """Add the topics that have queues to a table; return a line for each change."""
    changes = []
    for topic, nums in sorted(queue_nums.items()):
        found = table.get(topic)
        if found is None:
            nums = max(nums, named.get(topic, 0))
            table[topic] = TopicConfig(
                topic_name=topic, read_queue_nums=nums, write_queue_nums=nums
            )
            changes.append(f"add {topic}: queues={nums} perm=6 order=false")
        elif found.read_queue_nums < nums:
            table[topic] = msgspec.structs.replace(found, read_queue_nums=nums)
            changes.append(f"change {topic}: readQueueNums from {found.read_queue_nums} to {nums}")
    return changes


def _known(path: Path, files: Storage) -> _KnownTopics:
    damage = ""
    for place in (path, path.with_name(f"{path.name}.bak")):
        text = files.read(place)
        if text is None:
            continue
        try:
            document = _decoded(text)
            version = msgspec.convert(document.get("dataVersion") or {}, DataVersion)
            given = document.get("topicConfigTable") or {}
            return _KnownTopics(msgspec.convert(given, Table, strict=False), version, damage)
        except ValueError as error:
            if place == path:
                damage = str(error)
    return _KnownTopics({}, DataVersion(), damage)


def _decoded(text: bytes) -> dict[str, Any]:
    if not text.strip():
        raise ValueError("the file is empty")
    document = java_json.decode(text)
    if not isinstance(document, dict):
        raise ValueError("the text isn't a JSON object")
    return document


def _queue_nums(directory: Path, files: Storage) -> dict[str, int]:
    """Return how many queues each topic needs so that all its files can be read."""
    nums: dict[str, int] = {}
    for topic in _list_files(directory, files):
        if is_system_topic(topic) or not is_legal_name(topic):
            continue
        for name in _list_files(directory / topic, files):
            if not (name.isascii() and name.isdigit()) or int(name) >= QUEUE_NUMS_MAX:
                continue
            if any(map(may_be_offset_file, _list_files(directory / topic / name, files))):
                nums[topic] = max(nums.get(topic, 0), int(name) + 1)
    return nums


def _list_files(directory: Path, files: Storage) -> list[str]:
    return files.list_directory(directory) if files.is_directory(directory) else []


def _named_queue_nums(topics_path: Path, files: Storage) -> dict[str, int]:
    """Return how many queues of each topic have consumer offsets; some have no files yet."""
    nums: dict[str, int] = {}
    table: Any = {}
    with suppress(ValueError):
        text = files.read(topics_path.with_name("consumerOffset.json"))
        table = _decoded(text or b"").get("offsetTable")
    for key, offsets in table.items() if isinstance(table, dict) else ():
        topic = str(key).partition("@")[0]
        for queue_id in offsets if isinstance(offsets, dict) else ():
            with suppress(ValueError):
                if 0 <= int(queue_id) < QUEUE_NUMS_MAX:
                    nums[topic] = max(nums.get(topic, 0), int(queue_id) + 1)
    return nums
