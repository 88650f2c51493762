"""Plans of gets: how much each may return, and from which file ranges.

Pure functions. Arguments and results are Structs, because creating one takes a third of the time of
other objects.

Source: store/DefaultMessageStore.java getMessage, isTheBatchFull (4.9.8).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import astuple

from broker_core.formats.cq_unit import FILLER_SIZE, UNIT, UNIT_SIZE

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable

    from broker_core.config.store import StoreConfig
    from broker_core.store.mapped_file import MappedFile

    Run = tuple[MappedFile, int, int]
    """Adjacent records: their file, their position in it, their size. There may be one for each
    message, and a NamedTuple would take as long as everything else.
    """

_SIZE = struct.Struct(">i")
_unpack_size = _SIZE.unpack_from
SIZE_BYTES = _SIZE.size
RESIDENT_STEP = 256 * 1024
"""About how many bytes each query to the kernel about resident memory covers."""


class TransferLimits(Struct, gc=False):
    """The maximum size of a get's result, for data in memory and data on the disk."""

    count_in_memory: int
    bytes_in_memory: int
    count_on_disk: int
    bytes_on_disk: int


class LogWindow(Struct, gc=False):
    """Log offsets that bound the result of a get."""

    min_offset: int
    max_offset: int
    read_limit: int
    """Records that end after this offset must not be read."""
    disk_before: int
    """Records that begin before this offset are likely not in memory."""
    fresh_from: int = 0
    """Records from this offset on are in memory; the kernel is asked about earlier records."""


class Plan(Struct, gc=False):
    """The result of the part of a get that reads no record."""

    runs: list[Run]
    scanned: int
    """How many units it scanned, matching or not."""
    message_count: int
    byte_count: int
    last_offset: int
    """The log offset in the last unit scanned."""
    is_cold: bool
    """Whether some of it is likely not in memory."""
    is_removing: bool
    """Whether the result is empty because messages were deleted."""


def transfer_limits(config: StoreConfig, max_msg_nums: int) -> TransferLimits:
    """Return the limits of a get that asks for this many messages."""
    return TransferLimits(
        min(config.max_transfer_count_on_message_in_memory, max_msg_nums),
        config.max_transfer_bytes_on_message_in_memory,
        min(config.max_transfer_count_on_message_in_disk, max_msg_nums),
        config.max_transfer_bytes_on_message_in_disk,
    )


def plan_transfer(
    units: memoryview,
    limits: TransferLimits,
    window: LogWindow,
    file_at: Callable[[int], MappedFile | None],
    is_lost: Callable[[int], bool] | None = None,
    by_unit: Callable[[int], bool] | None = None,
    by_record: Callable[[memoryview], bool | None] | None = None,
) -> Plan:
    """Go through units of a ConsumeQueue until a limit is reached; the first message always fits.

    `is_lost` returns whether a log offset is in a damaged range, `by_unit` whether a tags code
    matches, and `by_record` whether a record in memory matches; None from `by_record` ends the plan
    before that record. Deleted messages and messages that don't match are skipped.
    """
    if by_unit is None and by_record is None and is_lost is None:
        start = _usual_start(units, limits, window, file_at)
        # The limit may be higher for data on the disk than for data in memory.
        is_full = start.scanned == limits.count_in_memory >= limits.count_on_disk
        if is_full or start.scanned == len(units) // UNIT_SIZE:
            return start
    else:
        start = Plan([], 0, 0, 0, 0, is_cold=False, is_removing=False)
    return _plan_rest(start, units, limits, window, file_at, is_lost, by_unit, by_record)


def _plan_rest(
    start: Plan,
    units: memoryview,
    limits: TransferLimits,
    window: LogWindow,
    file_at: Callable[[int], MappedFile | None],
    is_lost: Callable[[int], bool] | None,
    by_unit: Callable[[int], bool] | None,
    by_record: Callable[[memoryview], bool | None] | None,
) -> Plan:
    """Plan the units after the ones in `start`."""
    count_in_memory, bytes_in_memory, count_on_disk, bytes_on_disk = astuple(limits)
    min_offset, max_offset, read_limit, disk_before, fresh_from = astuple(window)
    here_from, here_to = 0, -1
    runs = start.runs
    run_file = file = None
    buffer: mmap.mmap | bytearray = bytearray()
    run_from = run_to = file_from = file_to = -1
    if runs:
        run_file, run_from, size = runs.pop()
        run_from += run_file.file_from_offset
        run_to = run_from + size
    scanned = count = start.message_count
    byte_count, offset, is_cold, is_removing = start.byte_count, start.last_offset, False, False
    for offset, size, tags_code in UNIT.iter_unpack(units[scanned * UNIT_SIZE :]):
        # A unit that points past the end of the log is damaged, not unflushed.
        if read_limit < offset + size <= max_offset and size != FILLER_SIZE:
            break
        is_on_disk = offset < disk_before
        if count:
            if is_on_disk:
                if count >= count_on_disk or byte_count + size > bytes_on_disk:
                    break
            elif count >= count_in_memory or byte_count + size > bytes_in_memory:
                break
        scanned += 1
        if by_unit is not None and not by_unit(tags_code):
            continue
        if not file_from <= offset < file_to:
            file = None if size == FILLER_SIZE else file_at(offset)
            file_from, file_to, buffer = _extent(file, max_offset)
        if (
            file is None
            or offset < min_offset
            or size < SIZE_BYTES
            or offset + size > file_to
            or (is_lost is not None and is_lost(offset))
        ):
            is_removing = is_removing or not count
            continue
        is_unread = is_on_disk
        if not is_on_disk and offset < fresh_from:
            if not here_from <= offset <= here_to - size:
                here_from, here_to = offset, offset + _resident(file, offset - file_from, size)
            is_unread = size > here_to - offset
        if is_unread:
            is_cold = True
        else:
            position = offset - file_from
            if _unpack_size(buffer, position)[0] != size:
                is_removing = is_removing or not count
                continue
            wanted = True if by_record is None else by_record(file.view[position : position + size])
            if wanted is None:
                scanned -= 1
                break
            if not wanted:
                continue
        count += 1
        byte_count += size
        if offset == run_to and file is run_file:
            run_to += size
        else:
            if run_file is not None:
                runs.append((run_file, run_from - run_file.file_from_offset, run_to - run_from))
            run_file, run_from, run_to = file, offset, offset + size
    if run_file is not None:
        runs.append((run_file, run_from - run_file.file_from_offset, run_to - run_from))
    return Plan(runs, scanned, count, byte_count, offset, is_cold, is_removing)


def _extent(file: MappedFile | None, max_offset: int) -> tuple[int, int, mmap.mmap | bytearray]:
    """Return a file's begin and end in the log, and its bytes; -1, -1 and no bytes for None."""
    if file is None:
        return -1, -1, bytearray()
    begin = file.file_from_offset
    return begin, min(begin + file.size, max_offset), file.buffer


def _usual_start(
    units: memoryview,
    limits: TransferLimits,
    window: LogWindow,
    file_at: Callable[[int], MappedFile | None],
) -> Plan:
    """Plan the leading records in memory of one file, up to the first special case.

    A loop without calls and with few checks: a get of 32 spends most of its time here.
    """
    plan = Plan([], 0, 0, 0, 0, is_cold=False, is_removing=False)
    if not units:
        return plan
    first = UNIT.unpack_from(units)[0]
    file = file_at(first)
    if file is None:
        return plan
    file_from = file.file_from_offset
    lowest = max(file_from, window.min_offset, window.disk_before)
    highest = min(file_from + file.size, window.max_offset, window.read_limit)
    if lowest <= first < window.fresh_from:
        lowest, highest = first, min(highest, first + _resident(file, first - file_from))
    bytes_left = limits.bytes_in_memory
    buffer, runs = file.buffer, plan.runs
    count = 0
    run_from = run_to = first
    for offset, size, _ in UNIT.iter_unpack(units[: limits.count_in_memory * UNIT_SIZE]):
        bytes_left -= size
        if (
            offset < lowest
            or not SIZE_BYTES <= size <= highest - offset
            or bytes_left < 0
            or _unpack_size(buffer, offset - file_from)[0] != size
        ):
            bytes_left += size
            break
        count += 1
        if offset != run_to:
            runs.append((file, run_from - file_from, run_to - run_from))
            run_from = offset
        run_to = offset + size
    if count:
        runs.append((file, run_from - file_from, run_to - run_from))
    plan.scanned = plan.message_count = count
    plan.byte_count = limits.bytes_in_memory - bytes_left
    last = min(count * UNIT_SIZE, len(units) - UNIT_SIZE)
    plan.last_offset = UNIT.unpack_from(units, last)[0]
    return plan


def is_resident(file: MappedFile, position: int) -> bool:
    """Return whether a record can be read without waiting for the disk."""
    here = _resident(file, position)
    return here >= SIZE_BYTES and here >= _unpack_size(file.buffer, position)[0]


def _resident(file: MappedFile, position: int, least: int = 0) -> int:
    """Return how many bytes from a position on are in memory, up to `least` or one step."""
    length = min(max(least, RESIDENT_STEP), file.size - position)
    return file.file.resident(file.buffer, position, length)
