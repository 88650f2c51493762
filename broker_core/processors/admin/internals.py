"""GET_BROKER_INTERNALS: the broker's threads, reads, memory and latencies. The request code is
Trebuchet's own.

The body is a JSON object::

    threads    {id, name, state, cpuMs, majorFaults}, busiest first; both counts since the start
    reads      diskReadBytes, coldMessages (delivered from older data than memory should hold)
    memory     mappedResidentBytes (of this process's files), pageCacheBytes, memoryBytes and
               availableBytes of the machine; null if the kernel doesn't report it
    log        minOffset, maxOffset, flushedOffset
    latencyBoundsMs and latencies (put, get, flush): calls in each bucket and above the last, since
               bootTimestamp and, as `recent`, within about a minute
    quarantine {from, to, reason, file, fileOffset}: damaged ranges of the log that readers skip
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from broker_core.formats.paths import offset_file_name
from broker_core.metrics import process
from broker_core.protocol.codes import ResponseCode
from broker_core.stats.latency import FINE_MS

if TYPE_CHECKING:
    from broker_core.metrics.readings import Readings
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.storage import Storage


class InternalsAdmin:
    """GET_BROKER_INTERNALS. Event loop only. `log_file_bytes` is the size of a log file."""

    def __init__(self, readings: Readings, files: Storage, log_file_bytes: int) -> None:
        self._readings = readings
        self._files = files
        self._log_file_bytes = log_file_bytes

    async def internals(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_BROKER_INTERNALS. Answers SUCCESS."""
        # In a thread: a kernel under pressure can take long to answer.
        threads = await asyncio.to_thread(process.threads, self._files)
        system = await asyncio.to_thread(process.reads_and_memory, self._files)
        parts = self._readings.parts
        stats, store = parts.stats, parts.store
        latencies = {
            "put": stats.put_latency,
            "get": stats.get_latency,
            "flush": stats.flush_latency,
        }
        body = {
            "bootTimestamp": self._readings.boot_ms,
            "threads": threads,
            "reads": {
                "diskReadBytes": system.pop("diskReadBytes"),
                "coldMessages": sum(stats.got_cold.values()),
            },
            "memory": system,
            "log": {
                "minOffset": store.min_commit_log_offset,
                "maxOffset": store.max_commit_log_offset,
                "flushedOffset": store.flushed_where,
            },
            "latencyBoundsMs": FINE_MS,
            "latencies": {name: each.counts for name, each in latencies.items()},
            "recent": {name: each.recent_counts for name, each in latencies.items()},
            "quarantine": self._quarantine(),
        }
        return request.answer(ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    def _quarantine(self) -> list[dict[str, Any]]:
        size = self._log_file_bytes
        return [
            {
                "from": each.offset_from,
                "to": each.offset_to,
                "reason": each.reason,
                "file": offset_file_name(each.offset_from - each.offset_from % size),
                "fileOffset": each.offset_from % size,
            }
            for each in self._readings.parts.store.files.quarantine.ranges
        ]
