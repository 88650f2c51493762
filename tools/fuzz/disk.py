"""Targets for binary files: the log, its queues and its index, and a start with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np

from broker_core.delivery.sql_filter import RecordProperties
from broker_core.errors import CorruptRecordError, StoreError
from broker_core.formats import checkpoint, cq_ext_unit, record
from broker_core.formats.cq_unit import UNIT_SIZE
from broker_core.formats.index_entry import file_size
from broker_core.formats.record_columns import RecordBuffer, RecordColumns, walk
from broker_core.formats.record_texts import RecordTexts
from broker_core.message import properties as message_properties
from broker_core.store.consume_queue import ConsumeQueue, no_bit_map
from broker_core.store.consume_queue_ext import ConsumeQueueExt
from broker_core.store.index_file import IndexFile
from tests.support.builders import a_store, get, store_config
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage
from tools.fuzz.target import Target

if TYPE_CHECKING:
    from broker_core.store.results import RecoveryReport

QUEUE = Path("/store/consumequeue/topic/0")
EXT = Path("/store/consumequeue_ext/topic/0")
FIRST = f"{0:020d}"
LOG = Path("/store/commitlog") / FIRST
LOG_BYTES = 16 * 1024
STORE = store_config(
    mapped_file_size_commit_log=LOG_BYTES,
    mapped_file_size_consume_queue=10 * UNIT_SIZE,
    max_hash_slot_num=8,
    max_index_num=32,
    check_crc_on_recover=True,
)
SLOTS, ENTRIES = 8, 100
EXT_BYTES = 1024
LATE_MS = 1 << 60
OFFSET_MAX = (1 << 63) - 1


def records(data: bytes) -> None:
    """Every reader accepts or rejects a record the same way; it's rewritten unchanged."""
    view = memoryview(data)
    try:
        head = record.examine(view, 0, len(view), None, check_crc=True)
    except CorruptRecordError:
        head = None
    try:
        message = record.decode(data)
    except CorruptRecordError:
        return
    assert head is not None
    assert message.store_size == head.size <= len(data)
    seen = record.summarize(view)
    assert (seen.properties, seen.store_size) == (message.properties, head.size)
    assert seen.reconsume_times == message.reconsume_times
    properties = RecordProperties(view[: head.size])
    for name, value in message.properties.items():
        if "\x01" not in name and "\x02" not in name:
            assert properties.get(name) == value
    if head.magic == record.MESSAGE_MAGIC:
        _assert_written(data, head)


def _assert_written(data: bytes, head: record.RecordHead) -> None:
    room = bytearray(head.size)
    view = memoryview(data)
    after_born = record.HEAD_SIZE + len(record.born_host_of(view, head))
    fixed = head.body_from - 16
    size = record.encode_into(
        room,
        0,
        topic=data[head.topic_from : head.topic_to],
        queue_id=head.queue_id,
        queue_offset=head.queue_offset,
        commit_log_offset=head.commit_log_offset,
        body=data[head.body_from : head.body_to],
        properties=data[head.properties_from : head.properties_to],
        flag=head.flag,
        sys_flag=head.sys_flag,
        born_timestamp=head.born_timestamp,
        born_host=record.born_host_of(view, head),
        store_timestamp=head.store_timestamp,
        store_host=data[after_born + 8 : fixed],
        reconsume_times=record.reconsume_times_of(view, head),
        prepared_transaction_offset=int.from_bytes(
            data[fixed + 4 : fixed + 12], "big", signed=True
        ),
    )
    assert size == head.size
    if head.body_to > head.body_from:
        assert bytes(room) == data[:size]


def columns(data: bytes) -> None:
    """Reading records in columns equals reading them one by one."""
    log = bytearray(data)
    buffer = RecordBuffer(log)
    found = walk(buffer, 0, len(log))
    rows = RecordColumns(buffer, found.positions)
    view = memoryview(log)
    for row, position in enumerate(found.positions.tolist()):
        try:
            head = record.examine(view, position, len(log), None, check_crc=False)
        except CorruptRecordError:
            assert not rows.is_whole[row]
            continue
        assert rows.is_whole[row]
        for name in ("queue_offset", "store_timestamp", "body_from", "body_to", "topic_to"):
            assert rows[name][row] == getattr(head, name), name
    rows.cut_at_first(~rows.is_whole | (rows["magic"] != record.MESSAGE_MAGIC))
    if not len(rows):
        return
    texts = RecordTexts(buffer, rows)
    rows.cut(texts.first_row_with_zeros())
    if not len(rows):
        return
    texts = RecordTexts(buffer, rows)
    topics, which = texts.topics()
    texts.find_properties()
    keys = texts.split(texts.values(b"KEYS"))
    texts.hashes(keys, np.zeros(len(keys.rows), np.int64))
    for row, (start, end) in enumerate(
        zip(rows["topic_from"].tolist(), rows["topic_to"].tolist(), strict=True)
    ):
        assert which[row] < 0 or topics[int(which[row])] == bytes(log[start:end])
    starts, ends = rows["properties_from"].tolist(), rows["end"].tolist()
    tags = texts.values(b"TAGS")
    odd = tags.first_odd_row(len(rows))
    stated = dict(zip(tags.rows.tolist(), tags.sizes.tolist(), strict=True))
    for row in range(odd):
        text = bytes(log[starts[row] : ends[row]]).decode("latin-1")
        value = message_properties.decode(text).get("TAGS")
        assert stated.get(row, 0) == len(value or "") or b"TAGS" in topics[int(which[row])]


def queue_files(data: bytes) -> None:
    """A queue loads with any units; its readable ones are between its ends."""
    file_bytes = 10 * UNIT_SIZE
    trust_end, units = bool(data[:1] < b"\x80"), data[1:]
    storage = _files(QUEUE, units, file_bytes)
    queue = ConsumeQueue("topic", 0, QUEUE, file_bytes, storage, lambda *_: None)
    queue.load(trust_end=trust_end)
    assert 0 <= queue.min_offset <= queue.next_offset
    for offset in range(queue.min_offset, queue.next_offset):
        unit = queue.unit(offset)
        assert unit is not None
        assert len(queue.stored_units(offset, 3)) % UNIT_SIZE == 0
    assert queue.unit(queue.next_offset) is None
    queue.end_commit_log_offset()
    queue.begin_commit_log_offset()
    found = queue.lower_bound(queue.min_offset, lambda offset: offset < 1000)
    assert queue.min_offset <= found <= queue.next_offset
    queue.correct_min_offset(500)
    assert queue.min_offset <= queue.max_offset
    end = queue.next_offset
    queue.append(7, 8, 9)
    assert queue.unit(end) == (7, 8, 9)
    queue.truncate(end, thorough=True)
    assert queue.next_offset == end
    queue.close()


def ext_files(data: bytes) -> None:
    """An address has an extension or not; the next one is written after all referenced ones."""
    address = int.from_bytes(data[:2], "big") % (3 * EXT_BYTES) + cq_ext_unit.ADDRESS_BASE
    units = data[2:]
    storage = _files(EXT, units, EXT_BYTES)
    ext = ConsumeQueueExt("topic", 0, EXT, EXT_BYTES, storage, lambda *_: None)
    ext.load(address if units else None, trust_end=False)
    for at in range(0, min(ext.end, 2 * EXT_BYTES), 20):
        unit = ext.unit(at + cq_ext_unit.ADDRESS_BASE)
        one = np.array([at + cq_ext_unit.ADDRESS_BASE], np.int64)
        if unit is not None:
            assert cq_ext_unit.decode(cq_ext_unit.encode(unit), 0) == unit
            codes, times = np.array([unit.tags_code]), np.array([unit.store_timestamp])
            assert ext.sizes(one, codes, times)[0] == unit.size
    fresh = cq_ext_unit.CqExtUnit(7, 8, b"bits")
    end = ext.end
    written = ext.put(fresh)
    assert written is not None
    assert written - cq_ext_unit.ADDRESS_BASE >= end
    assert ext.unit(written) == fresh
    ext.cut(end, thorough=True)
    ext.close()


def index_files(data: bytes) -> None:
    """A search ends with any index file; after truncation, its chains are consistent."""
    size = file_size(SLOTS, ENTRIES)
    storage = FaultyStorage()
    path = Path("/store/index/20261125000000000")
    storage.write_atomically(path, data[:size].ljust(size, b"\0"))
    index = IndexFile(storage.open(path), SLOTS, ENTRIES)
    for key_hash in range(SLOTS):
        assert len(index.find(key_hash, 0, LATE_MS, 32)) <= 32
    index.has_intact_chains(1)
    cut = min(int.from_bytes(data[16:24], "big", signed=True) + 100, OFFSET_MAX)
    index.cut_from(cut)
    assert index.has_intact_chains(index.first_number(cut))
    assert index.count == index.first_number(cut)
    if not index.is_full:
        index.make_room(1)
        index.put(5, cut, index.end_timestamp)
        is_of_our_time = 0 <= index.begin_timestamp < LATE_MS // 2
        assert cut in index.find(5, 0, LATE_MS, 64) or not is_of_our_time
    index.close()


def checkpoints(data: bytes) -> None:
    """A checkpoint is written as it was read."""
    found = checkpoint.decode(data)
    assert checkpoint.decode(checkpoint.encode(found)) == found
    assert found.min_timestamp >= 0


def starts(data: bytes) -> None:
    """A start with any log ends, and the next one finds nothing more to repair."""
    kind, content = data[:1] or b"\0", data[1:]
    is_clean, has_units = bool(kind[0] & 1), bool(kind[0] & 2)
    storage = FaultyStorage()
    half = len(content) // 2 if has_units else len(content)
    storage.write_atomically(LOG, content[:half][:LOG_BYTES].ljust(LOG_BYTES, b"\0"))
    if has_units:
        _write(storage, QUEUE, content[half:], 10 * UNIT_SIZE)
    for directory in (LOG.parent, QUEUE):
        storage.make_directory(directory)
    if not is_clean:
        storage.write_atomically(Path("/store/abort"), b"")
    try:
        # Allocating a chunk of megabytes takes longer than reading such a short log.
        with mock.patch("broker_core.store.bulk_scan.CHUNK_BYTES", LOG_BYTES):
            first = _start(storage)
            second = _start(storage)
    except StoreError:
        return
    if not has_units:
        # Forged units may support an end of the log that the next start doesn't see.
        assert second.truncated_bytes == 0
        assert second.max_commit_log_offset == first.max_commit_log_offset


def _start(storage: FaultyStorage) -> RecoveryReport:
    """Load a store, read all its queues, close it."""
    store = a_store(ManualClock(), storage, STORE, no_bit_map)
    report = store.load()
    for queue in list(store.files.queues):
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = get(store, offset, queue.topic, queue.queue_id)
            assert result.next_begin_offset != offset
            offset = max(result.next_begin_offset, offset + 1)
    store.close()
    return report


def _files(directory: Path, content: bytes, size: int) -> FaultyStorage:
    storage = FaultyStorage()
    storage.make_directory(directory)
    _write(storage, directory, content, size)
    return storage


def _write(storage: FaultyStorage, directory: Path, content: bytes, size: int) -> None:
    """Write content into files of one size."""
    storage.make_directory(directory)
    for start in range(0, len(content), size):
        piece = content[start : start + size].ljust(size, b"\0")
        storage.write_atomically(directory / f"{start:020d}", piece)


TARGETS = (
    Target("record", "log records, in every decoder", records, 1.5),
    Target(
        "record_columns",
        "batches of records, as in recovery and reports",
        columns,
        0.1,
        compares_arrays=True,
    ),
    Target("consume_queue", "queue files", queue_files, 0.1, compares_arrays=True),
    Target("consume_queue_ext", "queue extension files", ext_files, 0.1),
    Target("index_file", "index files", index_files, 0.15, compares_arrays=True),
    Target("checkpoint", "the checkpoint file", checkpoints),
    Target(
        "start",
        "two starts of a store with a mutated log and queue",
        starts,
        0.005,
        compares_arrays=True,
    ),
)
