"""The store's rows of GET_BROKER_RUNTIME_INFO that are read on demand, not counted.

Source: store/DefaultMessageStore.java getRuntimeInfo (4.9.8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.store.availability import Availability
    from broker_core.store.store_files import StoreFiles

UNBOUNDED = 0x7FFFFFFF


def runtime_info(
    files: StoreFiles, availability: Availability, disk: tuple[int, int], earliest_ms: int
) -> dict[str, str]:
    """Return the rows; disk is (used, free) in bytes, earliest_ms the oldest message's time."""
    log, pool = files.log, files.pool
    used, free = disk
    ratio = str(round(used / (used + free) if used + free else 1.0, 4))
    info = {
        "commitLogMinOffset": str(log.min_offset),
        "commitLogMaxOffset": str(log.max_offset),
        "commitLogDiskRatio": ratio,
        f"commitLogDiskRatio_{files.paths.commit_log}": ratio,
        "consumeQueueDiskRatio": ratio,
        "commitLogDirCapacity": f"Total : {size_text(used + free)}, Free : {size_text(free)}.",
        "dispatchBehindBytes": "0",
        "dispatchMaxBuffer": "0",
        "earliestMessageTimeStamp": str(earliest_ms),
        "remainHowManyDataToFlush": size_text(log.committed_where - log.flushed_where),
        "remainTransientStoreBufferNumbs": str(
            UNBOUNDED if pool is None else pool.available_buffer_nums
        ),
        "pageCacheLockTimeMills": "0",
        "storeState": availability.text(),
        "damagedRanges": str(len(files.quarantine.ranges)),
    }
    if pool is not None:
        info["remainHowManyDataToCommit"] = size_text(log.max_offset - log.committed_where)
    return info


def size_text(size: float) -> str:
    """Return a size as RocketMQ prints it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
