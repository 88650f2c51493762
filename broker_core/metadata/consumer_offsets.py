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
    from collections.abc import Callable

    from broker_core.config.limits import LimitsConfig
    from broker_core.metadata.document import Document

logger = logging.getLogger(__name__)

TOPIC_GROUP_SEPARATOR = "@"
SYSTEM_ERROR = 1
"""ResponseCode.SYSTEM_ERROR: this layer knows no wire."""
NEW_PAIR_COUNT = 10
"""A pair of group and topic takes about as much memory as so many offsets."""
OFFSET_MIN, OFFSET_MAX = -(1 << 63), (1 << 63) - 1
NAME_CHARS_MAX = 255


class ConsumerOffsets:
    """The next queue_offset of each group in each queue. Event loop only.

    Attributes:
        table: "topic@group" -> queue_id -> offset. Not to be changed by others, but by the native
            turn, which moves offsets that are there.
        is_dirty: whether the file does not have all of it.
        former: where groups were in topics that have been deleted since the start.
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
        "table",
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
        self._followed: dict[str, dict[int, int]] = {}
        """What the master had when `follow` was called last."""

    def load(self) -> None:
        """Read the file.

        Raises:
            StoreError: an offset in the file is not a number.
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
        """Store an offset, also a smaller one than before: that is a reset.

        Raises:
            RequestRefusedError: the group has none of this queue yet, and there are too many.
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
        """Take over the offsets of the master, a table in the file's shape.

        An offset moves forward only, unless the master's own moved back since the last call: that
        is a reset. A pair of group and topic that the master has deleted since then goes.

        Differs: the original takes whatever comes, and deletes nothing.
        """
        table = {
            key: {queue_id: _bounded(offset) for queue_id, offset in queues.items()}
            for key, queues in table.items()
        }
        before, self._followed = self._followed, table
        merged = {
            key: _merged(queues, self.table.get(key, {}), before.get(key, {}))
            for key, queues in table.items()
        }
        for key, queues in self.table.items():
            if key not in merged and key not in before:
                merged[key] = queues
        # In the order of the master, whose file this one is to equal.
        if list(merged.items()) != list(self.table.items()):
            self.table = merged
            self._count = sum(map(_count, merged.values()))
            own = {key: pair for key, pair in self._unknown.items() if key not in table}
            self._unknown = {key: pair for key, pair in own.items() if key in merged}
            self._unknown_count = sum(_count(merged[key]) for key in self._unknown)
            self.is_dirty = True

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the stored offset, -1 without one."""
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

    def delete_topic(self, topic: str) -> None:
        """Delete all offsets in a topic; `former` remembers which queues they were of."""
        prefix = topic + TOPIC_GROUP_SEPARATOR
        keys = [key for key in self.table if key.startswith(prefix)]
        for key in keys:
            self.former.remember(key.removeprefix(prefix), topic, self.table[key])
        self._delete(keys)

    def lower(
        self, end: Callable[[str, int], int], instead: Callable[[str, int], int] | None = None
    ) -> int:
        """Lower the offsets beyond the ends of their queues; return how many.

        Both functions are called with a topic and a queue_id. `instead` returns the new offset, by
        default the end.
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
        return {"offsetTable": self.table}

    def persist(self) -> None:
        """Write the file if an offset moved since the last time."""
        if self.is_dirty:
            self._document.save(self.document())
            self.is_dirty = False

    async def persist_in_thread(self) -> None:
        """Do the same, but encode and write in a thread."""
        if self.is_dirty:
            table = {key: dict(queues) for key, queues in self.table.items()}
            self.is_dirty = False
            try:
                await asyncio.to_thread(self._document.writing(lambda: {"offsetTable": table}))
            except Exception:
                self.is_dirty = True
                logger.exception("consumer offsets cannot be written; the next turn tries again")
            except asyncio.CancelledError:
                # No thread may have been free yet: whoever stops the broker writes them.
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
        """Count a new offset, unless there are too many; the broker's own always have room."""
        key = f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"
        is_own = (
            group == names.TRANSACTION_CONSUMER_GROUP
            and topic in names.SYSTEM_TOPICS
            and queue_id == 0
        )
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
                f"the offset is not stored: there are {self._count} and no more than "
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
        """Forget which pairs of group and topic did not exist, of those that do now."""
        for key, (group, topic) in list(self._unknown.items()):
            if self._is_known(group, topic):
                del self._unknown[key]
                self._unknown_count -= _count(self.table[key])


def _bounded(offset: int) -> int:
    """Return an offset from a file or a master as a number that fits the wire and native code."""
    return max(OFFSET_MIN, min(offset, OFFSET_MAX))


def _merged(queues: dict[int, int], own: dict[int, int], before: dict[int, int]) -> dict[int, int]:
    """Return the offsets of a pair: the master's `queues`, ours, and what the master had before."""
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
