"""How far each consumer group has read each queue, stored in consumerOffset.json.

Source: broker/offset/ConsumerOffsetManager.java (4.9.7).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from broker_core.clock import SystemClock
from broker_core.config.limits import LIMITS
from broker_core.errors import RequestRefusedError, StoreError
from broker_core.message import names
from broker_core.message.topic_config import QUEUE_NUMS_MAX
from broker_core.metadata.former_offsets import FormerOffsets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from broker_core.config.limits import LimitsConfig
    from broker_core.metadata.document import Document

logger = logging.getLogger(__name__)

TOPIC_GROUP_SEPARATOR = "@"
SYSTEM_ERROR = 1
"""ResponseCode.SYSTEM_ERROR, which this layer can't import."""
OWN_GROUPS = frozenset(
    {
        names.TRANSACTION_CONSUMER_GROUP,
        names.POP_REVIVE_GROUP,
        names.POP_REVIVE_SEEN_GROUP,
    }
)
"""The offsets of these groups are the broker's own progress."""
OWN_QUEUE_NUMS = 8
NEW_PAIR_COUNT = 10
"""A pair of group and topic uses about as much memory as this many offsets."""
OFFSET_MIN, OFFSET_MAX = -(1 << 63), (1 << 63) - 1
NAME_CHARS_MAX = 255


class ConsumerOffsets:
    """The next queue_offset of each group in each queue. Event loop only.

    Attributes:
        table: "topic@group" -> queue_id -> offset. Other code must not change it, except the native
            code, which moves existing offsets.
        is_dirty: whether the file is out of date.
        former: the groups' positions in topics that have been deleted since the start.
        note_progress: called before the table is copied, so that the copy records the matching
            position of the log.
        on_group_deleted, on_topic_deleted: called with the name of the deleted group or topic.
        until_durable: called before a copy is written; returns False when the matching log can't be
            made durable. Then the copy isn't written.
    """

    __slots__ = (
        "_count",
        "_document",
        "_followed",
        "_is_known",
        "_limits",
        "_unknown",
        "_unknown_count",
        "former",
        "is_dirty",
        "note_progress",
        "on_group_deleted",
        "on_topic_deleted",
        "table",
        "until_durable",
    )

    def __init__(
        self,
        document: Document,
        is_known: Callable[[str, str], bool] = lambda _group, _topic: True,
        limits: LimitsConfig = LIMITS,
        former: FormerOffsets | None = None,
    ) -> None:
        self.former = former or FormerOffsets(SystemClock())
        self._document = document
        self._is_known = is_known
        self._limits = limits
        self._count = 0
        self._unknown: dict[str, tuple[str, str]] = {}
        self._unknown_count = 0
        self.table: dict[str, dict[int, int]] = {}
        self.is_dirty = False
        self.note_progress: Callable[[], None] = _nothing
        self.on_group_deleted: Callable[[str], None] = _ignore
        self.on_topic_deleted: Callable[[str], None] = _ignore
        self.until_durable: Callable[[], Awaitable[bool]] = _at_once
        self._followed: dict[str, dict[int, int]] = {}
        """The master's table at the last call of `follow`."""

    def load(self) -> None:
        """Read the file.

        Raises:
            StoreError: an offset in the file isn't a number.
        """
        document = self._document.load() or {}
        try:
            self.table = {
                str(key): {int(queue): _bounded(int(offset)) for queue, offset in queues.items()}
                for key, queues in (document.get("offsetTable") or {}).items()
            }
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreError(f"{self._document.path}: {error}") from error
        self._count = sum(map(_count, self.table.values()))

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset, even a smaller one than before, which is a reset.

        Raises:
            RequestRefusedError: the group has no offset in this queue yet, and there are too many.
        """
        key = f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"
        queues = self.table.get(key)
        if queues is None:
            self._make_room(group, topic, queue_id, NEW_PAIR_COUNT + 1)
            queues = self.table[key] = {}
        before = queues.get(queue_id)
        if before != offset:
            if before is None:
                if queues:
                    self._make_room(group, topic, queue_id, 1)
                self.former.forget(group, topic, queue_id)
            queues[queue_id] = offset
            self.is_dirty = True

    def follow(self, table: dict[str, dict[int, int]]) -> None:
        """Copy the offsets of the master from a table in the file's shape.

        An offset only moves forward, unless the master's own moved back since the last call, which
        is a reset. A pair of group and topic that the master has deleted since then is removed.

        The first table of a master with leases replaces this one: one of this broker's offsets may
        be past a message whose lease only a former master had.

        Differs: RocketMQ copies every table as is, and deletes nothing.
        """
        table = {
            key: {queue_id: _bounded(offset) for queue_id, offset in queues.items()}
            for key, queues in table.items()
        }
        before, self._followed = self._followed, table
        own_table = {} if not before and records_needed(table) else self.table
        merged = {
            key: _merged(queues, own_table.get(key, {}), before.get(key, {}))
            for key, queues in table.items()
        }
        for key, queues in own_table.items():
            if key not in merged and key not in before:
                merged[key] = queues
        # Keep the master's order, so that both files are equal.
        if list(merged.items()) != list(self.table.items()):
            self.table = merged
            self._count = sum(map(_count, merged.values()))
            own = {key: pair for key, pair in self._unknown.items() if key not in table}
            self._unknown = {key: pair for key, pair in own.items() if key in merged}
            self._unknown_count = sum(_count(merged[key]) for key in self._unknown)
            self.is_dirty = True

    def forget_master(self) -> None:
        """Treat the next table passed to `follow` as the first of a new master."""
        self._followed = {}

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the stored offset, or -1."""
        queues = self.table.get(f"{topic}{TOPIC_GROUP_SEPARATOR}{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """Return a copy of queue_id -> offset."""
        return dict(self.table.get(f"{topic}{TOPIC_GROUP_SEPARATOR}{group}", {}))

    def topics_of(self, group: str) -> set[str]:
        """Return the topics in which the group has offsets."""
        suffix = TOPIC_GROUP_SEPARATOR + group
        return {key[: -len(suffix)] for key in self.table if key.endswith(suffix)}

    def topics_by_group(self) -> dict[str, list[str]]:
        """Return the topics in which each group has offsets."""
        topics: dict[str, list[str]] = {}
        for key in self.table:
            topic, _, group = key.rpartition(TOPIC_GROUP_SEPARATOR)
            topics.setdefault(group, []).append(topic)
        return topics

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have offsets in the topic."""
        prefix = topic + TOPIC_GROUP_SEPARATOR
        return {key[len(prefix) :] for key in self.table if key.startswith(prefix)}

    def delete_group(self, group: str) -> None:
        suffix = TOPIC_GROUP_SEPARATOR + group
        self._delete([key for key in self.table if key.endswith(suffix)])
        self.former.forget_group(group)
        self.on_group_deleted(group)

    def delete_topic(self, topic: str) -> None:
        """Delete all offsets in a topic; `former` remembers their queues."""
        prefix = topic + TOPIC_GROUP_SEPARATOR
        keys = [key for key in self.table if key.startswith(prefix)]
        for key in keys:
            self.former.remember(key.removeprefix(prefix), topic, self.table[key])
        self._delete(keys)
        self.on_topic_deleted(topic)

    def lower(
        self, end: Callable[[str, int], int], instead: Callable[[str, int], int] | None = None
    ) -> int:
        """Lower the offsets past the ends of their queues; return how many.

        `end` and `instead` are called with a topic and a queue_id. `instead` returns the new
        offset, by default the end.
        """
        count = 0
        for key, queues in self.table.items():
            topic = key.partition(TOPIC_GROUP_SEPARATOR)[0]
            for queue_id, offset in queues.items():
                if offset > end(topic, queue_id):
                    queues[queue_id] = (instead or end)(topic, queue_id)
                    count += 1
        self.is_dirty = self.is_dirty or count > 0
        return count

    def document(self) -> dict[str, Any]:
        """Return the whole table in the file's shape."""
        self.note_progress()
        return {"offsetTable": self.table}

    def persist(self) -> None:
        """Write the file if an offset has moved since the last time.

        Only when nothing is leased, or the log is durable: `persist_in_thread` ensures that.
        """
        self.note_progress()
        if self.is_dirty:
            self._document.save(self.document())
            self.is_dirty = False

    async def persist_in_thread(self) -> None:
        """Persist once the log is durable, encoding and writing in a thread."""
        self.note_progress()
        if self.is_dirty:
            table = {key: dict(queues) for key, queues in self.table.items()}
            self.is_dirty = False
            try:
                if not await self.until_durable():
                    self.is_dirty = True
                    return
                await asyncio.to_thread(self._document.writing(lambda: {"offsetTable": table}))
            except Exception:
                self.is_dirty = True
                logger.exception("consumer offsets not written, will retry")
            except asyncio.CancelledError:
                # If no thread was free, the shutdown writes the offsets.
                self.is_dirty = True
                raise

    def _delete(self, keys: list[str]) -> None:
        for key in keys:
            count = _count(self.table.pop(key))
            self._count -= count
            if self._unknown.pop(key, None) is not None:
                self._unknown_count -= count
            self.is_dirty = True

    def _make_room(self, group: str, topic: str, queue_id: int, count: int) -> None:
        """Count a new offset, unless there are too many; the broker's own offsets always fit."""
        key = f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"
        is_own = group in OWN_GROUPS and names.is_system_topic(topic) and queue_id < OWN_QUEUE_NUMS
        limits = self._limits
        if not 0 <= queue_id < QUEUE_NUMS_MAX or max(len(group), len(topic)) > NAME_CHARS_MAX:
            raise RequestRefusedError(
                SYSTEM_ERROR,
                f"the offset is not stored: queue {queue_id} is not below {QUEUE_NUMS_MAX}, or a "
                f"name has more than {NAME_CHARS_MAX} characters",
            )
        if self._count + count > limits.consumer_offset_nums_max and not is_own:
            raise RequestRefusedError(
                SYSTEM_ERROR,
                f"the offset is not stored: the broker has {self._count} offsets; the limit is "
                f"consumerOffsetNumsMax={limits.consumer_offset_nums_max}",
            )
        is_new = key not in self.table
        if key in self._unknown or (is_new and not is_own and not self._is_known(group, topic)):
            if self._unknown_count + count > limits.unknown_offset_nums_max:
                self._find_known()
            if self._unknown_count + count > limits.unknown_offset_nums_max:
                raise RequestRefusedError(
                    SYSTEM_ERROR,
                    f"the offset is not stored: group {group} or topic {topic} does not exist, "
                    f"and there are unknownOffsetNumsMax={limits.unknown_offset_nums_max} such "
                    "offsets already",
                )
            self._unknown[key] = group, topic
            self._unknown_count += count
        self._count += count

    def _find_known(self) -> None:
        """Recheck which pairs of group and topic don't exist; some may have been created."""
        for key, (group, topic) in list(self._unknown.items()):
            if self._is_known(group, topic):
                del self._unknown[key]
                self._unknown_count -= _count(self.table[key])


def records_needed(table: Mapping[str, dict[int, int]]) -> list[tuple[str, int, int]]:
    """Return how much of the log the offsets in a table need: topics, queues and their ends.

    Offsets may be past leased messages. Without the lease records those messages are lost.
    """
    suffix = TOPIC_GROUP_SEPARATOR + names.POP_REVIVE_SEEN_GROUP
    return [
        (key.removesuffix(suffix), queue_id, end)
        for key, queues in table.items()
        if key.endswith(suffix)
        for queue_id, end in queues.items()
    ]


def _nothing() -> None:
    """Do nothing; the default for `note_progress`."""


def _ignore(_name: str) -> None:
    """Do nothing; the default callback for deletions."""


async def _at_once() -> bool:
    """Return immediately; the default for `until_durable`."""
    return True


def _bounded(offset: int) -> int:
    """Return an offset from a file or a master as a number that fits the wire and native code."""
    return max(OFFSET_MIN, min(offset, OFFSET_MAX))


def _merged(queues: dict[int, int], own: dict[int, int], before: dict[int, int]) -> dict[int, int]:
    """Return the merged offsets of a pair: the master's, this broker's, and the master's previous
    offsets.
    """
    merged = {
        queue_id: offset
        if offset < before.get(queue_id, offset)
        else max(offset, own.get(queue_id, offset))
        for queue_id, offset in queues.items()
    }
    here_alone = own.keys() - queues.keys() - before.keys()
    return merged | {queue_id: own[queue_id] for queue_id in here_alone}


def _count(queues: dict[int, int]) -> int:
    return NEW_PAIR_COUNT + len(queues)
