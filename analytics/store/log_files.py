"""CommitLog files, read with pread, so that a disk error is an exception, not a crash.

Files are never mapped, so bytes don't change while the decoder reads them.

Invariant: nothing here writes, creates, locks or renames.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from analytics.store.decode import MESSAGE_MAGICS, RECORD_SIZE_MIN, may_be_record
from broker_core.errors import CorruptRecordError
from broker_core.formats import paths, record
from broker_core.formats.record_columns import RecordBuffer, RecordColumns
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

# Read and decoded at a time; a larger record is read whole. A chunk that exceeds the core's cache
# would be fetched from memory in each pass, which takes twice as long.
CHUNK_BYTES = 4 * 1024 * 1024
# Initial read size of a search, because most records are smaller.
FIRST_SEARCH_BYTES = 64 * 1024


class LogFile(NamedTuple):
    """One CommitLog file."""

    path: Path
    from_offset: int
    size: int

    @property
    def to_offset(self) -> int:
        return self.from_offset + self.size


class PlaceInQueue(NamedTuple):
    """A record's own statement of its position in the ConsumeQueues."""

    topic: str
    queue_id: int
    queue_offset: int


def log_files(directory: Path) -> list[LogFile]:
    """Return the CommitLog files of a directory in offset order, without empty files.

    Raises:
        OSError: the directory isn't readable.
    """
    with os.scandir(directory) as entries:
        found = [
            LogFile(directory / entry.name, from_offset, size)
            for entry in entries
            if entry.is_file()
            and (from_offset := paths.parse_offset_file_name(entry.name)) is not None
            and (size := entry.stat().st_size)
        ]
    return sorted(found, key=lambda file: file.from_offset)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open a file for reading; close it at the end of the block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def pread(descriptor: int, buffer: NDArray[np.uint8], position: int) -> int:
    """Fill the buffer from a position in the file; return the bytes read, fewer only at its end."""
    view = buffer.data
    got = 0
    while got < len(view) and (count := os.preadv(descriptor, [view[got:]], position + got)):
        got += count
    return got


def record_size_at(file: LogFile, offset: int) -> int:
    """Return the size of the sound record at an offset of the log, or 0."""
    try:
        with opened(file.path) as descriptor:
            return sound_size(descriptor, file, offset)
    except OSError:
        return 0


def sound_size(descriptor: int, file: LogFile, offset: int) -> int:
    """Return the same as `record_size_at`, for an open file."""
    at = offset - file.from_offset
    head = os.pread(descriptor, record.BLANK.size, at)
    if len(head) < record.BLANK.size:
        return 0
    size, magic = record.BLANK.unpack(head)
    if not may_be_record(size, magic, file.to_offset - offset):
        return 0
    data = memoryview(os.pread(descriptor, size, at))
    try:
        return record.examine(data, 0, len(data), offset, check_crc=False).size
    except CorruptRecordError:
        return 0


def place_in_queue(descriptor: int, file: LogFile, offset: int) -> PlaceInQueue | None:
    """Return the queue position in the sound record at an offset of the log, or None."""
    size = sound_size(descriptor, file, offset)
    if not size:
        return None
    data = os.pread(descriptor, size, offset - file.from_offset)
    if len(data) < size:
        return None
    records = RecordColumns(RecordBuffer(memoryview(data)), np.zeros(1, dtype=np.int64))
    if not records.is_whole.all():
        return None
    try:
        topic = data[int(records["topic_from"][0]) : int(records["topic_to"][0])].decode()
    except UnicodeDecodeError:
        return None
    if not names.is_legal_name(topic):
        return None
    return PlaceInQueue(topic, int(records["queue_id"][0]), int(records["queue_offset"][0]))


def store_timestamp_ms(file: LogFile, offset: int) -> int | None:
    """Return when the record at an offset of the log was stored, or None."""
    try:
        with opened(file.path) as descriptor:
            if not sound_size(descriptor, file, offset):
                return None
            at = offset - file.from_offset
            return record.store_timestamp_of(
                memoryview(os.pread(descriptor, RECORD_SIZE_MIN, at)), 0
            )
    except OSError:
        return None


def magics_from(descriptor: int, file: LogFile, offset: int) -> Iterator[int]:
    """Yield, in ascending order, the positions where a magic code suggests a record."""
    step, position = FIRST_SEARCH_BYTES, offset
    while position < file.to_offset:
        wanted = min(step, file.to_offset - position)
        try:
            data = os.pread(descriptor, wanted, position - file.from_offset)
        except OSError:
            position += wanted
            continue
        if len(data) < RECORD_SIZE_MIN:
            return
        for at in sorted(_all_of(data, record.MESSAGE_MAGIC_BYTES, record.MESSAGE_MAGIC_V2_BYTES)):
            if at >= record.MAGIC_POSITION:
                yield position + at - record.MAGIC_POSITION
        # A record's first two words may cross the boundary.
        position += len(data) - record.BLANK.size + 1
        step = CHUNK_BYTES


def _all_of(data: bytes, *wanted: bytes) -> Iterator[int]:
    for one in wanted:
        at = data.find(one)
        while at >= 0:
            yield at
            at = data.find(one, at + 1)


def record_problem(size: int, magic: int, left: int) -> str:
    """Return why no record starts at these two words, with `left` bytes to the end."""
    if left < record.BLANK.size:
        return "too few bytes for a record"
    if size == magic == 0:
        return "zeros where a record should be"
    if magic not in MESSAGE_MAGICS:
        return f"illegal magic code 0x{magic & 0xFFFFFFFF:08X}"
    return f"size {size} doesn't fit"


def read_problem(error: OSError) -> str:
    """Return why a file wasn't readable."""
    return f"disk error: {error.strerror or error}"
