"""Divergence: where two logs diverge, and how this broker's part is saved before it is cut.

The epochs say up to which offset the same masters wrote both logs. A master that lost its tail in a
power cut continues the same epoch with different messages, so the last shared record is compared,
too, by a fingerprint of its head: location, times and checksum of the body.

Data that the other log lacks is saved to `diverged/<from>-<to>-<digest>/` under the store's root::

    commitlog/<offset>     the raw bytes, one file for each file of the log, named by its first byte
    messages.jsonl         one line per message: topic, queueId, queueOffset, keys, uniqKey, ...
    manifest.json          written last: the range, both logs' epochs, SHA-256 of each file above

Nothing is cut before the manifest is durable. A crash at any step leaves the log unchanged, and the
next comparison writes the same files again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import struct
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.errors import CorruptRecordError, ReplicationError
from broker_core.formats import record
from broker_core.formats.paths import offset_file_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    from broker_core.ha.epochs import Epoch, LogRange
    from broker_core.storage import Storage
    from broker_core.store.commit_log import CommitLog
    from broker_core.store.mapped_file import MappedFile

FINGERPRINT_BYTES_MAX = 4096
"""Enough of a record to identify it: the head includes the checksum of the body."""
PROBES = 8
"""How many records one request compares."""
COPY_STEP = 1 << 20
SPARE_BYTES = 16 << 20
"""Disk space to keep free in addition to the saved data."""
MANIFEST = "manifest.json"
MESSAGES = "messages.jsonl"

RECORD_MAGICS = (record.MESSAGE_MAGIC, record.MESSAGE_MAGIC_V2, record.BLANK_MAGIC)
_SIZE_AND_MAGIC = struct.Struct(">ii")


class Place(NamedTuple):
    """A range of a log that starts at a record."""

    commit_log_offset: int
    size: int


if TYPE_CHECKING:
    AskFingerprints = Callable[[Sequence[Place]], Awaitable[Sequence[str | None]]]


def fingerprint(log: CommitLog, place: Place) -> str | None:
    """Return a hash that identifies a record, or None if the log lacks these bytes."""
    offset, size = place
    if size <= 0 or offset < log.min_offset or offset + size > log.max_offset:
        return None
    view = log.read(offset, size)
    if view is None:
        return None
    return hashlib.sha256(view[:FINGERPRINT_BYTES_MAX]).hexdigest()


async def find_shared_end(
    log: CommitLog, limit: int, other: LogRange, ask: AskFingerprints, last: Place | None = None
) -> int:
    """Return the offset up to which both logs are equal, at most `limit`.

    `limit` follows from the epochs. `last` is the last record before it, if known: then one request
    is usually enough. Data that the other log has deleted counts as equal.

    Raises:
        ReplicationError: the logs have no record in common, or the other one begins after `limit`.
    """
    if limit <= log.min_offset:
        return limit
    if limit < other.min_offset:
        raise ReplicationError(
            f"the master's log begins at offset {other.min_offset}, but this broker's log "
            f"matches it only up to offset {limit}; the messages in between are deleted. Move the "
            "store directory away and start again, so that this broker copies the master's log"
        )
    low = max(log.min_offset, other.min_offset)
    if limit == low:
        return limit
    if last is not None and low <= last.commit_log_offset and sum(last) == limit:
        (theirs,) = await _ask(ask, [last])
        if theirs is not None and theirs == fingerprint(log, last):
            return limit
    # Newest file first: logs usually diverge near their ends.
    file = log.file_at(limit - 1)
    is_compared = False
    while file is not None and file.file_from_offset + file.size > low:
        records = await asyncio.to_thread(_Records, file, low, limit)
        same = await _count_same(log, records, ask)
        if same:
            return records.end_of(same - 1)
        is_compared = is_compared or len(records) > 0
        file = log.file_at(file.file_from_offset - 1)
    if is_compared:
        raise ReplicationError(
            "no record of this broker's log is in the master's; the brokers belong to different "
            "sets, or the master lost its log. If the master lost its log, promote this broker, "
            "which has the lost messages; otherwise give each set its own brokerName, or move "
            "this broker's store directory away"
        )
    return low


def messages_of(log: CommitLog, offset_from: int, offset_to: int) -> Iterator[dict[str, Any]]:
    """Yield a report entry for each record in a range, and for each unreadable part."""
    offset = offset_from
    while offset < offset_to:
        file = log.file_at(offset)
        if file is None:
            return
        position = offset - file.file_from_offset
        limit = min(file.size, offset_to - file.file_from_offset)
        try:
            head = record.examine(file.view, position, limit, offset, check_crc=True)
            if head.is_blank:
                offset = file.file_from_offset + file.size
                continue
            message = record.decode_examined(file.view, position, head)
        except CorruptRecordError as error:
            following = next_record(file, position + 1, limit)
            yield {
                "commitLogOffset": offset,
                "size": following - position,
                "unreadable": error.reason,
            }
            offset = file.file_from_offset + following
            continue
        yield {
            "commitLogOffset": offset,
            "size": head.size,
            "topic": message.topic,
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
            "keys": message.properties.get("KEYS", ""),
            "uniqKey": message.uniq_key or "",
            "tags": message.properties.get("TAGS", ""),
            "bornTimestamp": message.born_timestamp,
            "storeTimestamp": message.store_timestamp,
            "sysFlag": message.sys_flag,
            "reconsumeTimes": message.reconsume_times,
        }
        offset += head.size


def save_diverged(
    log: CommitLog,
    offset_from: int,
    own: LogRange,
    others: Sequence[Epoch],
    directory: Path,
    storage: Storage,
) -> Path:
    """Copy the log from an offset on into a directory below `directory`; return it.

    Blocks; the log must not change meanwhile. Everything is durable on return.

    Raises:
        ReplicationError: the disk has no room for it.
        OSError: it can't be written.
    """
    offset_to = own.max_offset
    needed = offset_to - offset_from + SPARE_BYTES
    _, free = storage.disk_usage(log.directory)
    if free < needed:
        raise ReplicationError(
            f"{offset_to - offset_from} bytes of this broker's log are not in the master's and "
            f"must be saved to {directory} before they are cut, but only {free} bytes are free "
            "there; free up space"
        )
    digest = hashlib.sha256()
    for _, data in _stretches(log, offset_from, offset_to):
        digest.update(data)
    place = directory / (
        f"{offset_file_name(offset_from)}-{offset_file_name(offset_to)}-{digest.hexdigest()[:8]}"
    )
    if storage.exists(place / MANIFEST):
        return place
    storage.make_directory(place / "commitlog")
    files = _copy_bytes(log, offset_from, offset_to, place, storage)
    count = _write_messages(log, offset_from, offset_to, place, storage)
    storage.sync_directory(place / "commitlog")
    storage.sync_directory(place)
    manifest = {
        "from": offset_from,
        "to": offset_to,
        "sha256": digest.hexdigest(),
        "messages": count,
        "files": files,
        "epochs": _as_json(own.epochs),
        "mastersEpochs": _as_json(others),
    }
    text = json.dumps(manifest, indent=2) + "\n"
    storage.write_atomically(place / MANIFEST, text.encode())
    return place


def _as_json(epochs: Sequence[Epoch]) -> list[dict[str, int]]:
    return [{"epoch": one.epoch, "startOffset": one.start_offset} for one in epochs]


def _copy_bytes(
    log: CommitLog, offset_from: int, offset_to: int, place: Path, storage: Storage
) -> list[dict[str, Any]]:
    files = []
    for offset, data in _stretches(log, offset_from, offset_to):
        path = place / "commitlog" / offset_file_name(offset)
        file = storage.open(path, create=True)
        try:
            file.set_size(0)
            for position in range(0, len(data), COPY_STEP):
                file.pwrite(position, data[position : position + COPY_STEP])
            file.fdatasync()
        finally:
            file.close()
        files.append(
            {
                "name": f"commitlog/{path.name}",
                "size": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
        )
    return files


def _write_messages(
    log: CommitLog, offset_from: int, offset_to: int, place: Path, storage: Storage
) -> int:
    file = storage.open(place / MESSAGES, create=True)
    count = position = 0
    try:
        file.set_size(0)
        for found in messages_of(log, offset_from, offset_to):
            line = json.dumps(found, ensure_ascii=False).encode() + b"\n"
            file.pwrite(position, line)
            position += len(line)
            count += "topic" in found
        file.fdatasync()
    finally:
        file.close()
    return count


def _stretches(
    log: CommitLog, offset_from: int, offset_to: int
) -> Iterator[tuple[int, memoryview]]:
    """Yield the bytes of a range, file by file, each with its offset."""
    offset = offset_from
    while offset < offset_to:
        file = log.file_at(offset)
        if file is None:
            return
        end = min(file.file_from_offset + file.size, offset_to)
        base = file.file_from_offset
        yield offset, file.view[offset - base : end - base]
        offset = end


async def _count_same(log: CommitLog, records: _Records, ask: AskFingerprints) -> int:
    """Return how many records, from the first on, are also in the other log.

    Records are equal up to the point where the logs diverge, and different after it.
    """
    low, high = 0, len(records)
    # Usually all records are equal, so check the last one first.
    probes = [high - 1]
    while low < high:
        places = [records.place(index) for index in probes]
        answers = await _ask(ask, places)
        for index, place, answer in zip(probes, places, answers, strict=True):
            if answer is not None and answer == fingerprint(log, place):
                low = max(low, index + 1)
            else:
                high = min(high, index)
        step = max(1, (high - low) // (PROBES + 1))
        probes = sorted({min(low + step * number, high - 1) for number in range(1, PROBES + 1)})
    return low


async def _ask(ask: AskFingerprints, places: Sequence[Place]) -> Sequence[str | None]:
    answers = await ask(places)
    if len(answers) != len(places):
        raise ReplicationError(
            f"the master answered {len(answers)} of {len(places)} requests about its log"
        )
    return answers


class _Records:
    """The locations of the whole records of a file within a range, including its blank record."""

    def __init__(self, file: MappedFile, offset_from: int, offset_to: int) -> None:
        base, position = file.file_from_offset, 0
        limit = min(file.size, offset_to - base)
        # Not a list of tuples, because a file may hold millions.
        self._offsets = array("q")
        self._ends = array("q")
        while position + _SIZE_AND_MAGIC.size <= limit:
            size, magic = _SIZE_AND_MAGIC.unpack_from(file.view, position)
            if magic not in RECORD_MAGICS or size < _SIZE_AND_MAGIC.size:
                position = next_record(file, position + 1, limit)
                continue
            if position + size > limit:
                return
            if base + position >= offset_from:
                self._offsets.append(base + position)
                self._ends.append(base + position + size)
            position += size

    def __len__(self) -> int:
        return len(self._offsets)

    def place(self, index: int) -> Place:
        """Return the location of a record, cut to FINGERPRINT_BYTES_MAX."""
        offset = self._offsets[index]
        return Place(offset, min(self._ends[index] - offset, FINGERPRINT_BYTES_MAX))

    def end_of(self, index: int) -> int:
        return self._ends[index]


def next_record(file: MappedFile, position: int, limit: int) -> int:
    """Return where the next readable record begins, or `limit`."""
    starts = []
    for magic in (record.MESSAGE_MAGIC_BYTES, record.MESSAGE_MAGIC_V2_BYTES):
        at = record.find_magic(file.buffer, magic, position + record.MAGIC_POSITION, limit)
        while at >= 0:
            start = at - record.MAGIC_POSITION
            try:
                record.examine(
                    file.view, start, limit, file.file_from_offset + start, check_crc=True
                )
            except CorruptRecordError:
                at = record.find_magic(file.buffer, magic, at + 1, limit)
                continue
            starts.append(start)
            break
    return min(starts, default=limit)
