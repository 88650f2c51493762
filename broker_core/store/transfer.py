"""What one get returns: how much it may be, and which bytes of which files it is.

Pure functions. Their arguments and results are Structs, which are made in a third of the time of
other objects.

Source: store/DefaultMessageStore.java getMessage, isTheBatchFull (4.9.8).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from msgspec import Struct

from broker_core.formats.cq_unit import FILLER_SIZE, UNIT

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable

    from broker_core.config.store import StoreConfig
    from broker_core.store.mapped_file import MappedFile

    Run = tuple[MappedFile, int, int]
    """Records side by side: their file, their place in it, their size. There may be one for each
    message: a NamedTuple would take as long as all the rest."""

_unpack_size = struct.Struct(">i").unpack_from


class TransferLimits(Struct, gc=False):
    """How much one get returns at most, of what is in memory and of what is on the disk."""

    count_in_memory: int
    bytes_in_memory: int
    count_on_disk: int
    bytes_on_disk: int


class LogWindow(Struct, gc=False):
    """Offsets of the log that bound what a get may return."""

    min_offset: int
    max_offset: int
    read_limit: int
    """Nothing that ends behind it may be read."""
    disk_before: int
    """What begins before it is likely not in memory."""


class Plan(Struct, gc=False):
    """What a get found out without reading any record."""

    runs: list[Run]
    scanned: int
    """How many units it went past, matching or not."""
    message_count: int
    byte_count: int
    last_offset: int
    """Where the last unit looked at leads to in the log."""
    is_cold: bool
    """Whether some of it is likely not in memory."""
    is_removing: bool
    """Whether there is nothing, because messages are gone."""


def transfer_limits(config: StoreConfig, max_msg_nums: int) -> TransferLimits:
    """Return the limits of a get that asks for so many messages."""
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
    by_record: Callable[[memoryview], bool] | None = None,
) -> Plan:
    """Go through units of a ConsumeQueue until a limit is reached; the first message always fits.

    `is_lost` says of an offset of the log whether it lies in a damaged range; by_unit and by_record
    whether a tags code, and a record in memory, match. What is gone or does not match is passed
    over.
    """
    count_in_memory, bytes_in_memory = limits.count_in_memory, limits.bytes_in_memory
    count_on_disk, bytes_on_disk = limits.count_on_disk, limits.bytes_on_disk
    min_offset, max_offset = window.min_offset, window.max_offset
    read_limit, disk_before = window.read_limit, window.disk_before
    runs: list[Run] = []
    run_file = file = None
    buffer: mmap.mmap | bytearray = bytearray()
    run_from = run_to = file_from = file_to = -1
    scanned = count = byte_count = offset = 0
    is_cold = is_removing = False
    # One loop without calls for the usual message: a get of 32 spends most of its time here.
    for offset, size, tags_code in UNIT.iter_unpack(units):
        if offset + size > read_limit and size != FILLER_SIZE:
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
            file_from = -1 if file is None else file.file_from_offset
            file_to = -1 if file is None else min(file_from + file.size, max_offset)
            buffer = buffer if file is None else file.buffer
        if (
            file is None
            or offset < min_offset
            or offset + size > file_to
            or (is_lost is not None and is_lost(offset))
        ):
            is_removing = is_removing or not count
            continue
        if is_on_disk:
            is_cold = True
        else:
            position = offset - file_from
            if _unpack_size(buffer, position)[0] != size:
                is_removing = is_removing or not count
                continue
            if by_record is not None and not by_record(file.view[position : position + size]):
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
