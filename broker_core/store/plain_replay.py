"""PlainReplay: the fast path for records without special features.

A live slave gets few records at a time, too few for arrays to pay off. Nearly all of them are
intact, have the first magic code and IPv4 hosts, and are the next record of an existing queue. For
these a single loop does the work of `record.examine` and `RecordDispatch`; it stops before the
first other record without changing anything for it. If `native/replay.pxi` was built, it does the
same, compiled.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

from broker_core.formats.cq_unit import UNIT, UNIT_SIZE
from broker_core.formats.record import (
    CRC_MASK,
    FIXED_V4_SIZE,
    MESSAGE_MAGIC,
    OVERHEAD_V4,
    PROPERTIES_SIZE,
    is_guard_right,
)
from broker_core.message.names import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY
from broker_core.message.properties import decode as decode_properties
from broker_core.message.sys_flag import HOST_V6_MASK, TRANSACTION_PREPARED_TYPE
from broker_core.message.tags import tags_code
from broker_core.store.record_dispatch import queue_of_record

if TYPE_CHECKING:
    from broker_core.store.consume_queue import ConsumeQueue
    from broker_core.store.consume_queues import ConsumeQueues
    from broker_core.store.deleted_topics import DeletedTopics
    from broker_core.store.index_service import IndexService
    from broker_core.store.mapped_file import MappedFile
    from broker_core.store.record_dispatch import KeySink

HEAD_V4 = Struct(">iiii4xqqi8x8xq8x4x8xi")
"""The size, magic, body crc, queue id, queue offset, log offset, sys flag, store timestamp and body
size from FIXED_V4.
"""
_unpack_head = HEAD_V4.unpack_from
_unpack_size = PROPERTIES_SIZE.unpack_from
_pack_unit_into = UNIT.pack_into
ODD_FLAGS = HOST_V6_MASK | TRANSACTION_PREPARED_TYPE
QUEUES_KEPT_MAX = 4_096

assert HEAD_V4.size == FIXED_V4_SIZE


class PlainDispatch(Protocol):
    """The interface of the Python and the compiled version; see PlainReplay."""

    records: int
    store_timestamp: int
    grown: dict[ConsumeQueue, None]

    def dispatch(self, file: MappedFile, position: int, limit: int) -> int: ...


class PlainTwin(Protocol):
    """Creates the compiled version.

    `keys` gets the entries that `index` has no room for; None without an index.
    """

    def __call__(
        self,
        queues: ConsumeQueues,
        deleted: DeletedTopics,
        keys: KeySink | None,
        index: IndexService | None,
    ) -> PlainDispatch: ...


class PlainReplay:
    """Event loop only. Create a new one after queues were deleted.

    Attributes:
        records, store_timestamp: how many records the last call dispatched, and when the last of
            them was stored.
        grown: the queues that got units; the caller empties it.
    """

    def __init__(
        self,
        queues: ConsumeQueues,
        deleted: DeletedTopics,
        keys: KeySink | None,
        *,
        is_guarded: bool,
    ) -> None:
        self.records = 0
        self.store_timestamp = 0
        self.grown: dict[ConsumeQueue, None] = {}
        self._queues = queues
        self._deleted = deleted
        self._keys = keys
        self._is_guarded = is_guarded
        self._known: dict[tuple[bytes, int], ConsumeQueue] = {}

    def dispatch(self, file: MappedFile, position: int, limit: int) -> int:
        """Check and dispatch records from a position on; return where the first other one begins.

        Raises:
            OSError: a queue or the index has no room; records dispatched before it stay.
        """
        view, buffer, base = file.view, file.buffer, file.file_from_offset
        known, grown, keys = self._known, self.grown, self._keys
        records = 0
        last = limit - OVERHEAD_V4
        while position <= last:
            size, magic, crc, queue_id, queue_offset, own_offset, sys_flag, stored, body_size = (
                _unpack_head(buffer, position)
            )
            end = position + size
            body_from = position + FIXED_V4_SIZE
            body_to = body_from + body_size
            if (
                magic != MESSAGE_MAGIC
                or end > limit
                or own_offset != base + position
                or sys_flag & ODD_FLAGS
                or not body_from <= body_to <= end - 3
            ):
                break
            topic_size = view[body_to]
            tail = bytes(view[body_to + 1 : end])
            text_from = topic_size + 2
            if text_from > len(tail) or _unpack_size(tail, topic_size)[0] != len(tail) - text_from:
                break
            topic = tail[:topic_size]
            queue = known.get((topic, queue_id)) or self._find(topic, queue_id, own_offset)
            if queue is None or queue.next_offset != queue_offset or queue.code_of is not None:
                break
            text = tail[text_from:]
            if (
                b"\0" in text
                or (body_size and crc32(view[body_from:body_to]) & CRC_MASK != crc)
                or (self._is_guarded and not is_guard_right(view, position, end))
            ):
                break
            try:
                get = decode_properties(text.decode()).get
            except UnicodeDecodeError:
                break
            if queue.position >= queue.limit:
                queue.make_room()
            if keys is not None:
                keys.put(
                    queue.key_seed,
                    get(PROPERTY_UNIQ_KEY),
                    get(PROPERTY_KEYS),
                    own_offset,
                    stored,
                )
            code = tags_code(get(PROPERTY_TAGS))
            _pack_unit_into(queue.buffer, queue.position, own_offset, size, code)
            queue.position += UNIT_SIZE
            queue.next_offset = queue_offset + 1
            grown[queue] = None
            records += 1
            self.store_timestamp = stored
            position = end
        self.records = records
        return position

    def _find(self, topic: bytes, queue_id: int, commit_log_offset: int) -> ConsumeQueue | None:
        queue = queue_of_record(self._queues, self._deleted, topic, queue_id, commit_log_offset)
        if queue is None:
            return None
        if len(self._known) >= QUEUES_KEPT_MAX:
            self._known.clear()
        self._known[topic, queue_id] = queue
        return queue
