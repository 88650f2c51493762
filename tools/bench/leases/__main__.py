"""Measure the cost of leases as records in the message log, compared with a bare side log.

`python -m tools.bench.leases` prints CPU time and bytes for each pop of 32 messages and for each
acknowledgement. The side log only packs, checks and writes its records: recovery, compaction and
replication would be extra.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import sys
import tempfile
import time
import zlib
from pathlib import Path

from broker_core.message.topic_config import TopicConfig
from broker_core.pop.checkpoint import OFFSETS_MAX, Handle, QueueKey
from broker_core.pop.results import PopRequest, PopResult
from tests.support.broker import running_broker
from tests.support.builders import put

COUNT = 4_000
PER_WRITE = 16
TOPIC = "leases"
RECORD = struct.Struct(">IBHIqqqI")
Acknowledgement = tuple[QueueKey, Handle, int]


async def measure(directory: Path) -> list[str]:
    """Return one line for each figure."""
    async with running_broker(directory) as broker:
        parts = broker.storage
        store, engine = parts.store, parts.pop.engine
        parts.topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=1, write_queue_nums=1))
        for _ in range(COUNT):
            put(store, TOPIC, 0, b"x" * 100)
        leased: list[Acknowledgement] = []
        pops = COUNT // OFFSETS_MAX
        request = PopRequest(group="g", topic=TOPIC, invisible_ms=600_000, init_mode=0)
        began_at, began_s = store.max_commit_log_offset, time.thread_time()
        for _ in range(pops):
            popped = engine.pop(request)
            assert isinstance(popped, PopResult)
            for batch in popped.batches:
                handle = Handle(batch.start_offset, popped.pop_time_ms)
                leased += [(batch.key, handle, offset) for offset in batch.offsets]
        lines = [_line("pop of 32", began_s, store.max_commit_log_offset - began_at, pops)]
        began_at, began_s = store.max_commit_log_offset, time.thread_time()
        for key, handle, offset in leased:
            engine.acknowledge(key, handle, [offset])
        size = store.max_commit_log_offset - began_at
        lines.append(_line("acknowledgement, record in the log", began_s, size, len(leased)))
    began_s = time.thread_time()
    size = _write_side_log(directory / "side", leased)
    lines.append(_line("acknowledgement, side log alone", began_s, size, len(leased)))
    return lines


def _write_side_log(path: Path, leased: list[Acknowledgement]) -> int:
    waiting = bytearray()
    size = 0
    with path.open("wb", buffering=0) as file:
        for number, (key, handle, offset) in enumerate(leased):
            record = RECORD.pack(
                0, 1, 1, key.queue_id, handle.start_offset, handle.pop_time_ms, offset, 0
            )
            waiting += record + zlib.crc32(record).to_bytes(4, "big")
            if number % PER_WRITE == PER_WRITE - 1:
                size += file.write(waiting)
                waiting.clear()
        size += file.write(waiting)
    return size


def _line(name: str, began_s: float, size: int, count: int) -> str:
    each_us = (time.thread_time() - began_s) / count * 1e6
    return f"{name}: {each_us:.1f} us, {size / count:.0f} bytes"


def main() -> int:
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory() as directory:
        print("\n".join(asyncio.run(measure(Path(directory)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
